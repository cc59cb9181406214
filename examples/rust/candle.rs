// SPDX-License-Identifier: Apache-2.0
//! Trains a small network of candle in fp16 with loss scaling. The weights are candle's own tensors, which AdamW updates
//! in place; its moments have 8 bits, and the optimizer keeps what fp16 leaves out of the fp32 master weights. Half-way
//! the state is saved and the training goes on with moments in 16 bits, then in fp32. Fails if the loss does not fall.
//!
//! Run with `GRADSCALER_LIBRARY=<libgradscaler.so.1> cargo run --release --features candle-core --bin candle` in
//! this folder.
use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Result, Tensor, Var, D};
use gradscaler::{
    Context, GradScaler, MasterFormat, Norm, Optimizer, OptimizerOptions, ScalerOptions,
    StateFormat, TensorList,
};
use half::f16;
use std::cell::Cell;

type Fallible<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Tells where the elements of a contiguous fp16 tensor on the CPU lie.
struct Address(Cell<*mut f16>);

impl InplaceOp1 for Address {
    fn name(&self) -> &'static str {
        "address"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        match (storage, layout.contiguous_offsets()) {
            (CpuStorage::F16(values), Some((first, end))) => {
                self.0.set(values[first..end].as_mut_ptr());
                Ok(())
            }
            _ => candle_core::bail!("a parameter is not contiguous fp16"),
        }
    }
}

/// An optimizer over variables, which must live as long as it does and keep their storage: no `Var::set`.
struct CandleOptimizer {
    optimizer: Optimizer<'static>,
    variables: Vec<Var>,
}

impl CandleOptimizer {
    fn new(context: &Context, options: OptimizerOptions, variables: &[Var]) -> Fallible<Self> {
        let mut params = Vec::new();
        for variable in variables {
            let address = Address(Cell::new(std::ptr::null_mut()));
            variable.inplace_op1(&address)?;
            let count = variable.elem_count();
            // Sound as long as nothing else uses the elements while the optimizer steps on them.
            params.push(unsafe {
                let data = address.0.get().cast();
                gradscaler::Tensor::from_raw_parts(data, count, gradscaler::DType::Fp16)
            });
        }
        let grads = variables.iter().map(|v| vec![f16::ZERO; v.elem_count()]);
        let lists = (TensorList::new(context, params)?, TensorList::new(context, grads)?);
        let optimizer = Optimizer::new(options, lists)?;
        Ok(CandleOptimizer { optimizer, variables: variables.to_vec() })
    }

    /// Backward pass of the scaled loss, and a step that is skipped if a gradient is inf or NaN.
    fn step(&mut self, loss: &Tensor, scaler: &mut GradScaler) -> Fallible<()> {
        let gradients = (loss * f64::from(scaler.scale()?))?.backward()?;
        for (i, variable) in self.variables.iter().enumerate() {
            let gradient = gradients.get(variable).ok_or("a parameter has no gradient")?;
            let values = gradient.flatten_all()?.to_vec1::<f16>()?;
            self.optimizer.grads_mut().get_mut::<f16>(i)?.copy_from_slice(&values);
        }
        scaler.clip_grad_norm(&mut self.optimizer, 1.0, Norm::L2)?;
        scaler.step_and_update(&mut self.optimizer)?;
        Ok(())
    }
}

fn network(input: &Tensor, weights: &[Var]) -> Result<Tensor> {
    input.matmul(weights[0].as_tensor())?.tanh()?.matmul(weights[1].as_tensor())
}

fn main() -> Fallible<()> {
    let device = Device::Cpu;
    let random = |rows: usize, columns: usize, spread: f64| -> Result<Tensor> {
        // candle's generator on the CPU has no seed: a fixed pattern that no layer can see.
        let values = (0..rows * columns).map(|i| ((i * i + 7 * i) % 101) as f64 / 50.0 - 1.0);
        let values = Tensor::from_iter(values.map(|v| (v * spread) as f32), &device)?;
        values.reshape((rows, columns))?.to_dtype(DType::F16)
    };
    let input = random(256, 16, 1.0)?;
    let target = (input.narrow(D::Minus1, 0, 4)?.tanh()? * 0.8)?.to_dtype(DType::F32)?;
    let weights = [Var::from_tensor(&random(16, 64, 0.3)?)?, Var::from_tensor(&random(64, 4, 0.2)?)?];
    let loss = || -> Result<Tensor> {
        (network(&input, &weights)?.to_dtype(DType::F32)? - &target)?.sqr()?.mean_all()
    };

    let context = Context::cpu()?;
    let mut scaler = GradScaler::new(&context, ScalerOptions::default().growth_interval(50))?;
    let mut saved: Option<Vec<u8>> = None;
    let first = loss()?.to_scalar::<f32>()?;
    let mut last = first;
    for state in [StateFormat::Bits8, StateFormat::Bits16, StateFormat::Full] {
        let options = OptimizerOptions::adamw()
            .lr(3e-3)
            .weight_decay(0.0)
            .state_format(state)
            .master_format(MasterFormat::Split16);
        let mut adamw = CandleOptimizer::new(&context, options, &weights)?;
        if let Some(bytes) = &saved {
            adamw.optimizer.load(bytes)?; // converts the moments
        }
        for _ in 0..150 {
            adamw.step(&loss()?, &mut scaler)?;
        }
        let bytes = adamw.optimizer.save()?;
        let now = loss()?.to_scalar::<f32>()?;
        println!("{state:?}: {} steps, {} bytes of state, loss {last:.5} -> {now:.5}",
            adamw.optimizer.steps()?.applied, bytes.len());
        if now >= last {
            return Err("the loss did not fall".into());
        }
        (last, saved) = (now, Some(bytes));
    }
    if last > first / 20.0 {
        return Err(format!("loss {first} fell to {last} only").into());
    }
    Ok(())
}

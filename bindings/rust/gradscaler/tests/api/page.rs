// SPDX-License-Identifier: Apache-2.0
// The code of docs/rust.md, which tests/support/page_snippets.py finds here word for word.

/// The loss is the sum of the weights, so that every gradient is the scale.
fn backward(overflows: bool, gradients: &mut [u16], scale: f32) {
    let bits = match scale {
        s if overflows || s > 65504.0 => 0x7c00, // inf
        s => ((s.log2() as u16) + 15) << 10,
    };
    gradients.fill(bits);
}

#[test]
fn first_example() -> Result<(), Box<dyn std::error::Error>> {
    let mut master_weights = vec![0f32; 4];
    let mut gradients = vec![0u16; 4];
    let mut weights = vec![0u16; 4];
    // 65536 is the first scale and inf in fp16, so that the first two batches overflow.
    let batches = [false, true, false];

    use gradscaler::{
        Context, GradScaler, Lists, Norm, Optimizer, OptimizerOptions, ScalerOptions, Tensor,
        TensorList,
    };

    let context = Context::cpu()?;
    let lists = Lists {
        params: TensorList::new(&context, [&mut master_weights])?, // Vec<f32>
        grads: TensorList::new(&context, [Tensor::fp16(&mut gradients)])?, // Vec<u16>
        model_copy: Some(TensorList::new(&context, [Tensor::fp16(&mut weights)])?), // Vec<u16>
        state: vec![],
    };
    let mut optimizer = Optimizer::new(OptimizerOptions::adamw().lr(2e-3), lists)?;
    let mut scaler = GradScaler::new(&context, ScalerOptions::default())?;
    for batch in batches {
        backward(batch, optimizer.grads_mut().bits_mut(0)?, scaler.scale()?); // yours: fills the gradients
        scaler.clip_grad_norm(&mut optimizer, 1.0, Norm::L2)?;
        scaler.step(&mut optimizer)?; // skipped if a gradient is inf or NaN
        scaler.update()?;
    }

    drop(optimizer);
    assert!((master_weights[0] + 2e-3).abs() < 1e-6);
    assert_eq!(weights[0] >> 15, 1);
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
// A 64-64-64-10 network with ReLU in candle. Weights, activations and gradients are of one dtype, fp16 or fp32.
use crate::dataset::{Random, CLASSES, PIXELS};
use candle_core::backprop::GradStore;
use candle_core::error::Result;
use candle_core::{DType, Device, Tensor, Var, WithDType, D};

const WIDTHS: [usize; 4] = [PIXELS, 64, 64, CLASSES];

pub struct Network {
    /// Matrix (inputs x outputs) and bias of layer after layer.
    pub weights: Vec<Var>,
}

/// fp32 values for the weights, by He's initialisation.
pub fn master_weights() -> Vec<Vec<f32>> {
    let mut random = Random::new(0, 1);
    let mut all = Vec::new();
    for layer in WIDTHS.windows(2) {
        let spread = (2.0 / layer[0] as f32).sqrt();
        all.push(
            (0..layer[0] * layer[1])
                .map(|_| spread * random.normal())
                .collect(),
        );
        all.push(vec![0.0; layer[1]]);
    }
    all
}

pub fn name(tensor: usize) -> String {
    format!(
        "layer{}.{}",
        tensor / 2,
        if tensor % 2 == 0 { "weight" } else { "bias" }
    )
}

impl Network {
    pub fn new<T: WithDType>() -> Result<Self> {
        let mut weights = Vec::new();
        for layer in WIDTHS.windows(2) {
            weights.push(Var::zeros((layer[0], layer[1]), T::DTYPE, &Device::Cpu)?);
            weights.push(Var::zeros(layer[1], T::DTYPE, &Device::Cpu)?);
        }
        Ok(Network { weights })
    }

    pub fn set<T: WithDType>(&self, tensor: usize, values: &[T]) -> Result<()> {
        let weight = &self.weights[tensor];
        weight.set(&Tensor::from_slice(values, weight.shape(), &Device::Cpu)?)
    }

    fn logits(&self, pixels: &Tensor) -> Result<Tensor> {
        let mut x = pixels.clone();
        for (i, layer) in self.weights.chunks(2).enumerate() {
            x = x.matmul(&layer[0])?.broadcast_add(&layer[1])?;
            if i + 2 < WIDTHS.len() {
                x = x.relu()?;
            }
        }
        Ok(x)
    }

    /// Mean cross-entropy, in fp32.
    pub fn loss(&self, pixels: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let logits = self.logits(pixels)?.to_dtype(DType::F32)?;
        let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
        let sums = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
        shifted
            .broadcast_sub(&sums)?
            .gather(&labels.unsqueeze(1)?, 1)?
            .mean_all()?
            .neg()
    }

    /// The gradient of weight `tensor`, which the backward pass has made.
    pub fn gradient<T: WithDType>(&self, made: &GradStore, tensor: usize) -> Result<Vec<T>> {
        match made.get(&self.weights[tensor]) {
            Some(gradient) => gradient.flatten_all()?.to_vec1(),
            None => candle_core::bail!("{} has no gradient", name(tensor)),
        }
    }

    pub fn accuracy(&self, pixels: &Tensor, labels: &Tensor) -> Result<f32> {
        let guesses = self.logits(pixels)?.argmax(D::Minus1)?;
        guesses
            .eq(labels)?
            .to_dtype(DType::F32)?
            .mean_all()?
            .to_scalar()
    }
}

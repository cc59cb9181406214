// SPDX-License-Identifier: Apache-2.0
// A mixed-precision training loop: fp32 master weights, a network in T, AdamW, and a scaler that may be disabled.
use crate::dataset::{Dataset, Random};
use crate::network::{master_weights, name, Network};
use crate::Result;
use candle_core::WithDType;
use gradscaler::{
    ops, Context, Element, GradScaler, Lists, Optimizer, OptimizerOptions, ScalerOptions, Tensor,
    TensorList,
};

const TRAIN_IMAGES: usize = 1437;
const BATCH: usize = 64;
const STEPS: usize = 200;

/// What came out of a run.
pub struct Outcome {
    pub accuracy: f32,
    pub skipped: u64,
    pub scale: f32,
}

/// fp32 master weights with gradients and a copy in T, which the network runs on.
fn make_optimizer<T: Element + WithDType>(
    context: &Context,
) -> gradscaler::Result<Optimizer<'static>> {
    let master = master_weights();
    let (mut grads, mut copy) = (Vec::new(), Vec::new());
    for (i, values) in master.iter().enumerate() {
        let mut rounded = vec![T::zero(); values.len()];
        ops::cast(context, values, &mut rounded)?;
        grads.push(Tensor::from(vec![T::zero(); values.len()]).named(name(i)));
        copy.push(Tensor::from(rounded));
    }
    let lists = Lists {
        params: TensorList::new(context, master)?,
        grads: TensorList::new(context, grads)?,
        // Written in the same pass that updates the master weights.
        model_copy: Some(TensorList::new(context, copy)?),
        state: vec![],
    };
    Optimizer::new(OptimizerOptions::adamw().lr(2e-3), lists)
}

fn load_weights<T: Element + WithDType>(
    network: &Network,
    optimizer: &Optimizer<'_>,
) -> Result<()> {
    let copy = optimizer.model_copy().expect("a model copy");
    for i in 0..copy.len() {
        network.set(i, copy.get::<T>(i)?)?;
    }
    Ok(())
}

/// Trains with a loss that is multiplied by `factor`.
pub fn train<T: Element + WithDType>(
    context: &Context,
    digits: &Dataset,
    policy: ScalerOptions,
    factor: f64,
) -> Result<Outcome> {
    let (train, test) = digits.split(TRAIN_IMAGES);
    let network = Network::new::<T>()?;
    let mut optimizer = make_optimizer::<T>(context)?;
    let mut scaler = GradScaler::new(context, policy)?;
    load_weights::<T>(&network, &optimizer)?;
    let mut random = Random::new(0, 2);
    for _ in 0..STEPS {
        let images: Vec<usize> = (0..BATCH)
            .map(|_| train[random.below(train.len())])
            .collect();
        let (pixels, labels) = digits.batch(&images, <T as WithDType>::DTYPE)?;
        let loss = network.loss(&pixels, &labels)?;
        let scale = f64::from(scaler.scale()?);
        let made = (loss * (factor * scale))?.backward()?;
        let mut grads = optimizer.grads_mut();
        for i in 0..grads.len() {
            grads
                .get_mut::<T>(i)?
                .copy_from_slice(&network.gradient::<T>(&made, i)?);
        }
        // Check, unscale, AdamW and the weights in T; skipped if a gradient is inf or NaN.
        scaler.step(&mut optimizer)?;
        scaler.update()?;
        load_weights::<T>(&network, &optimizer)?;
    }
    let (pixels, labels) = digits.batch(&test, <T as WithDType>::DTYPE)?;
    Ok(Outcome {
        accuracy: network.accuracy(&pixels, &labels)?,
        skipped: optimizer.steps()?.skipped,
        scale: scaler.scale()?,
    })
}

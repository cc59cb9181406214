// SPDX-License-Identifier: Apache-2.0
// The feature `half`.
use super::*;
use half::{bf16, f16};

#[test]
fn halves_are_elements() -> Result<()> {
    let context = Context::cpu()?;
    let one = f16::from_f32(1.0);
    let grads = TensorList::new(&context, [vec![one; 3]])?;
    assert_eq!(grads.tensor(0)?.dtype(), DType::Fp16);
    let lists = Lists {
        params: list(&context, 3),
        grads,
        model_copy: Some(TensorList::new(&context, [vec![bf16::ZERO; 3]])?),
        state: vec![],
    };
    let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(0.5), lists)?;
    optimizer.step()?;
    assert_eq!(optimizer.model_copy().unwrap().get::<bf16>(0)?, [bf16::from_f32(-0.5); 3]);
    refused(optimizer.grads().get::<bf16>(0), InvalidArgument, "Fp16, not Bf16");
    Ok(())
}

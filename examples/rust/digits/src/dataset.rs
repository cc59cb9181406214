// SPDX-License-Identifier: Apache-2.0
// Images of 8 x 8 pixels, each a digit: reading, splitting and sampling them, with the random numbers of the example in
// C.
use candle_core::error::{Error, Result};
use candle_core::{DType, Device, Tensor};
use std::fs;

pub const PIXELS: usize = 64;
pub const CLASSES: usize = 10;

/// splitmix64, and what is derived from it.
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random {
            state: seed.wrapping_mul(0x9E3779B97F4A7C15).wrapping_add(stream),
        };
        random.state = random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E3779B97F4A7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / 9007199254740992.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        (radius * (2.0 * std::f64::consts::PI * self.unit()).cos()) as f32
    }
}

pub struct Dataset {
    images: Vec<[f32; PIXELS]>,
    labels: Vec<u32>,
}

impl Dataset {
    pub fn read(file: &str) -> Result<Self> {
        let text =
            fs::read_to_string(file).map_err(|error| Error::Msg(format!("{}: {}", file, error)))?;
        let mut all = Dataset {
            images: vec![],
            labels: vec![],
        };
        for (i, line) in text.lines().enumerate() {
            let wrong = || {
                Error::Msg(format!(
                    "{}:{}: not {} pixels and a digit",
                    file,
                    i + 1,
                    PIXELS
                ))
            };
            let numbers: Vec<u32> = line
                .split(',')
                .map(|word| word.parse().map_err(|_| wrong()))
                .collect::<Result<_>>()?;
            let (label, pixels) = numbers.split_last().ok_or_else(wrong)?;
            let pixels: [u32; PIXELS] = pixels.try_into().map_err(|_| wrong())?;
            all.images.push(pixels.map(|pixel| pixel as f32 / 16.0));
            all.labels.push(*label);
        }
        Ok(all)
    }

    /// Numbers of images to learn from, and of images to test with.
    pub fn split(&self, train: usize) -> (Vec<usize>, Vec<usize>) {
        let mut random = Random::new(0, 0);
        let mut order: Vec<usize> = (0..self.labels.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        let test = order.split_off(train);
        (order, test)
    }

    /// Pixels (images x 64) in `dtype`, and labels.
    pub fn batch(&self, images: &[usize], dtype: DType) -> Result<(Tensor, Tensor)> {
        let pixels: Vec<f32> = images.iter().flat_map(|&i| self.images[i]).collect();
        let labels: Vec<u32> = images.iter().map(|&i| self.labels[i]).collect();
        let pixels =
            Tensor::from_vec(pixels, (images.len(), PIXELS), &Device::Cpu)?.to_dtype(dtype)?;
        Ok((
            pixels,
            Tensor::from_vec(labels, images.len(), &Device::Cpu)?,
        ))
    }
}

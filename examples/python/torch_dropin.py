# SPDX-License-Identifier: Apache-2.0
"""gradscaler's GradScaler in place of PyTorch's: one import changes. Trains on the CPU, or on a GPU if there is one.

Exit status 1 if the network has not learnt.
"""

import sys

import torch

from gradscaler.torch import GradScaler  # instead of torch.amp


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = GradScaler(device, growth_interval=50)
    x = torch.randn(512, 16, device=device)
    y = x[:, :4].sum(1, keepdim=True).sin()

    for step in range(200):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16 if device == "cuda" else torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}, scale {scaler.get_scale():g}")
    print(f"at the end: loss {loss.item():.4f}, scale {scaler.get_scale():g}")
    return 0 if loss.item() < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())

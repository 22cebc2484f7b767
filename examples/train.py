"""Trains a small CNN on a folder of images, wherever it lies: the job of `tools/dev demo`.

  python examples/train.py s3://bucket/train --epochs 3

Everything of Quiver is in the two lines that make `data` and `loader`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import quiver_cache.torch as qt
import torch
from torch import nn

SIDE = 48


def augment(image):  # PIL image -> float tensor of shape (3, SIDE, SIDE), values 0 to 1
    pixels = torch.frombuffer(bytearray(image.resize((SIDE, SIDE)).tobytes()), dtype=torch.uint8)
    picture = pixels.view(SIDE, SIDE, 3).permute(2, 0, 1).float() / 255
    return picture.flip(2) if torch.rand(()) < 0.5 else picture


def small_cnn(classes: int) -> nn.Module:
    def block(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16), *block(16, 32), *block(32, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="train")
    parser.add_argument("--record", type=Path, help="write each delivered batch here")
    parser.add_argument("--report", type=Path, help="write one JSON object per epoch here")
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    data = qt.ImageFolder(arguments.url, transform=augment, name=arguments.name)
    loader = qt.DataLoader(
        data,
        batch_size=arguments.batch_size,
        shuffle=True,
        num_workers=arguments.workers,
        persistent_workers=arguments.workers > 0,
        seed=arguments.seed,
        record=arguments.record,
    )
    model = small_cnn(len(data.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(arguments.epochs):
        started, losses = time.monotonic(), []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        if arguments.report:
            line = {
                **loader.report(),
                "epoch": epoch,
                "seconds": time.monotonic() - started,
                "loss": float(torch.stack(losses).mean()),
            }
            with arguments.report.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""train_peers.py - time of a training step on one core beside numpy and PyTorch: same model, batch and optimizer

    tests/clients/environment build/clients           PyTorch and numpy from PyPI
    build/clients/bin/python perf/train_peers.py      in the build folder: TRAIN=./trainer/tutti-train ROUNDS=5

Each takes a random batch of 256 images of a set of 20000, subtracts their mean, and descends with momentum 0.9, on one
thread. Every round runs each program once; medians over the rounds.
"""
import json
import os
import statistics
import subprocess
import sys
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
import numpy as np  # noqa: E402

SAMPLES, SIDE, CLASSES, BATCH, RATE, MOMENTUM = 20000, 28, 10, 256, 0.05, 0.9
STEPS = {"mlp:256": 200, "cnn": 20}
random = np.random.default_rng(1)
images = random.integers(0, 256, (SAMPLES, SIDE * SIDE), dtype=np.uint8)
labels = random.integers(0, CLASSES, SAMPLES)


def batch():
    rows = random.integers(0, SAMPLES, BATCH)
    return images[rows].astype(np.float32) / np.float32(255) - np.float32(0.5), labels[rows]


def timed(step, steps):
    for _ in range(3):
        step()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - begin) / steps * 1e3


# ---- PyTorch -------------------------------------------------------------------------------------------------------------


def pytorch(model, steps):
    import torch
    from torch import nn

    torch.set_num_threads(1)
    if model == "cnn":
        net = nn.Sequential(
            nn.Unflatten(1, (1, SIDE, SIDE)), nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 49, CLASSES))
    else:
        net = nn.Sequential(nn.Linear(SIDE * SIDE, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)

    def step():
        x, y = batch()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()

    return timed(step, steps)


# ---- numpy ---------------------------------------------------------------------------------------------------------------


class Dense:
    def __init__(self, inputs, outputs):
        self.w = random.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32)
        self.b = np.zeros(outputs, np.float32)

    def forward(self, x):
        self.x = x
        return x @ self.w + self.b

    def backward(self, g, first):
        self.gw, self.gb = self.x.T @ g, g.sum(0)
        return None if first else g @ self.w.T


class Relu:
    def forward(self, x):
        self.on = x > 0
        return x * self.on

    def backward(self, g, first):
        return g * self.on


class Convolution:
    """5 x 5 windows as rows of a matrix, ReLU, 2 x 2 max pooling"""

    def __init__(self, planes, outputs, side):
        self.planes, self.side = planes, side
        self.w = random.normal(0, (25 * planes) ** -0.5, (25 * planes, outputs)).astype(np.float32)
        self.b = np.zeros(outputs, np.float32)

    def forward(self, x):
        n, side = len(x), self.side
        x = np.pad(x.reshape(n, self.planes, side, side), ((0, 0), (0, 0), (2, 2), (2, 2)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(2, 3))
        self.rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * side * side, -1)
        y = np.maximum(self.rows @ self.w + self.b, 0).reshape(n, side // 2, 2, side // 2, 2, -1)
        pooled = y.max((2, 4))
        self.most = (y == pooled[:, :, None, :, None]) & (y > 0)
        return pooled.transpose(0, 3, 1, 2).reshape(n, -1)

    def backward(self, g, first):
        n, side = len(g), self.side
        g = g.reshape(n, -1, side // 2, side // 2).transpose(0, 2, 3, 1)[:, :, None, :, None]
        g = (self.most * g).reshape(n * side * side, -1)
        self.gw, self.gb = self.rows.T @ g, g.sum(0)
        if first:
            return None
        windows = (g @ self.w.T).reshape(n, side, side, self.planes, 5, 5)
        x = np.zeros((n, self.planes, side + 4, side + 4), np.float32)
        for i in range(5):
            for j in range(5):
                x[:, :, i:i + side, j:j + side] += windows[..., i, j].transpose(0, 3, 1, 2)
        return x[:, :, 2:-2, 2:-2].reshape(n, -1)


def numpy(model, steps):
    if model == "cnn":
        net = [Convolution(1, 8, SIDE), Convolution(8, 16, SIDE // 2), Dense(16 * 49, CLASSES)]
    else:
        net = [Dense(SIDE * SIDE, 256), Relu(), Dense(256, CLASSES)]
    layers = [layer for layer in net if hasattr(layer, "w")]
    speed = [[np.zeros_like(layer.w), np.zeros_like(layer.b)] for layer in layers]

    def step():
        x, y = batch()
        for layer in net:
            x = layer.forward(x)
        x = np.exp(x - x.max(1, keepdims=True))
        x /= x.sum(1, keepdims=True)
        x[np.arange(BATCH), y] -= 1
        x /= np.float32(BATCH)
        for layer in reversed(net):
            x = layer.backward(x, layer is net[0])
        for layer, v in zip(layers, speed):
            for i, (value, gradient) in enumerate(((layer.w, layer.gw), (layer.b, layer.gb))):
                v[i] = np.float32(MOMENTUM) * v[i] + gradient
                value -= np.float32(RATE) * v[i]

    return timed(step, steps)


# ---- all -----------------------------------------------------------------------------------------------------------------


def tutti(model, steps, device):
    command = [os.environ.get("TRAIN", "./trainer/tutti-train"), "--data", "synth", "--strategy", "one", "--model", model,
               "--global-batch", str(BATCH), "--device", device, "--steps", str(steps), "--eval-every", "100000"]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(result.stdout.splitlines()[-1])["step_ms"]


def main():
    programs = {"tutti": lambda m, s: tutti(m, s, "cpu"), "numpy": numpy, "PyTorch": pytorch}
    times = {(model, name): [] for model in STEPS for name in programs}
    for _ in range(int(os.environ.get("ROUNDS", "5"))):
        for model, name in times:
            times[model, name].append(programs[name](model, STEPS[model]))
    print("| model | tutti, ms a step | numpy | PyTorch | of numpy's | of PyTorch's |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for model in STEPS:
        ms = {name: statistics.median(times[model, name]) for name in programs}
        print(f"| {model} | {ms['tutti']:.2f} | {ms['numpy']:.2f} | {ms['PyTorch']:.2f} | "
              f"{ms['tutti'] / ms['numpy']:.2f} | {ms['tutti'] / ms['PyTorch']:.2f} |")


if __name__ == "__main__":
    sys.exit(main())

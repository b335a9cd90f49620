# SPDX-License-Identifier: MIT
"""The models in PyTorch, each with the shape of its input and its number of classes."""

from torch import nn


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10)), (1, 28, 28), 10


def alexnet():
    return nn.Sequential(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
                         nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
                         nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
                         nn.Flatten(), nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(),
                         nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, 1000)), (3, 224, 224), 1000


def alexnet32():
    return nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Dropout(), nn.Linear(1024, 4096), nn.ReLU(),
                         nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, 10)), (3, 32, 32), 10


def softmax():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), (1, 28, 28), 10


MODELS = {"softmax": softmax, "lenet": lenet, "alexnet": alexnet, "alexnet32": alexnet32}

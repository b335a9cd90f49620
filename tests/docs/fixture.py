# SPDX-License-Identifier: MIT
"""Files that the commands of the documentation name: DIR, day_0.gz, DATA/mnist and others, all generated and small."""
import gzip
import os
import random
import subprocess


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def criteo(rows):
    """Lines like those of Criteo's click logs."""
    draw = random.Random(1)
    lines = []
    for _ in range(rows):
        numbers = [str(draw.randrange(100)) for _ in range(13)]
        words = ["%08x" % draw.randrange(50) for _ in range(26)]
        lines.append("\t".join([str(draw.randrange(2))] + numbers + words))
    return ("\n".join(lines) + "\n").encode()


def libsvm(rows):
    draw = random.Random(2)
    return "".join(f"{draw.choice(['+1', '-1'])} {1 + i % 7}:1 {9 + i % 5}:0.5\n" for i in range(rows)).encode()


def make(folder, verbena):
    """Makes the files once; each page gets links to them."""
    os.makedirs(f"{folder}/DATA")
    digits = [verbena, "data", "synth", "digits", f"{folder}/DIR", "--n", "2000"]
    subprocess.run(digits, check=True, stdout=subprocess.DEVNULL)
    draw = random.Random(3)
    for name in ["data_batch_%d" % i for i in range(1, 6)] + ["test_batch"]:
        records = [bytes([draw.randrange(10)]) + draw.randbytes(3072) for _ in range(100)]
        write(f"{folder}/DIR/{name}.bin", b"".join(records))
    os.symlink(f"{folder}/DIR", f"{folder}/DATA/mnist")
    clicks = criteo(3000)
    write(f"{folder}/train.txt", clicks)
    with gzip.open(f"{folder}/day_0.gz", "wb") as file:
        file.write(clicks)
    write(f"{folder}/a9a", libsvm(600))
    write(f"{folder}/a9a.t", libsvm(200))
    write(f"{folder}/job.key", bytes(32))
    os.chmod(f"{folder}/job.key", 0o600)

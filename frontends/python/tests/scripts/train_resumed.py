"""Usual code for image training: batches in pieces, a rate that warms up per batch, averaged
metrics, and epochs that continue from the last checkpoint. It knows nothing of penstock."""

import argparse
import math
import os

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

WARM_UP = 2  # epochs


class Metric:
    def __init__(self, name):
        self.name = name
        self.sum = torch.tensor(0.0)
        self.n = torch.tensor(0.0)

    def update(self, value):
        self.sum += hvd.allreduce(value.detach().cpu(), name=self.name)
        self.n += 1

    @property
    def average(self):
        return self.sum / self.n


def make_model():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 5),
    )


def adjust_rate(optimizer, args, epoch, batch, batches):
    passed = epoch + (batch + 1) / batches
    warm = min(1.0, (passed * (hvd.size() - 1) / WARM_UP + 1) / hvd.size())
    for group in optimizer.param_groups:
        group["lr"] = args.lr * hvd.size() * args.pieces * warm


def train_epoch(model, optimizer, loader, args, epoch):
    model.train()
    loss_metric = Metric("train_loss")
    accuracy = Metric("train_accuracy")
    for i, (data, target) in enumerate(loader):
        adjust_rate(optimizer, args, epoch, i, len(loader))
        optimizer.zero_grad()
        for at in range(0, len(data), args.batch_size):
            part, wanted = data[at : at + args.batch_size], target[at : at + args.batch_size]
            output = model(part)
            accuracy.update((output.argmax(1) == wanted).float().mean())
            loss = F.cross_entropy(output, wanted)
            loss_metric.update(loss)
            loss.div_(math.ceil(len(data) / args.batch_size))
            loss.backward()
        optimizer.step()
    return loss_metric.average.item(), accuracy.average.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint-format", default="checkpoint-{epoch}.pt")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--pieces", type=int, default=2, help="batches per all-reduce")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--use-adasum", action="store_true")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    if torch.cuda.is_available() and hvd.nccl_built():
        torch.cuda.set_device(hvd.local_rank())

    # Only rank 0 may see the files.
    resume_from = 0
    if hvd.rank() == 0:
        for epoch in range(args.epochs, 0, -1):
            if os.path.exists(args.checkpoint_format.format(epoch=epoch)):
                resume_from = epoch
                break
    resume_from = hvd.broadcast(torch.tensor(resume_from), root_rank=0, name="resume_from").item()

    images = torch.randn(128, 1, 8, 8)
    dataset = TensorDataset(images, images[:, 0, :5, 0].argmax(1))
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(dataset, batch_size=args.batch_size * args.pieces, sampler=sampler)

    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-5)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.none,
        backward_passes_per_step=args.pieces,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    if resume_from > 0 and hvd.rank() == 0:
        saved = torch.load(args.checkpoint_format.format(epoch=resume_from))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(resume_from, args.epochs):
        sampler.set_epoch(epoch)
        loss, accuracy = train_epoch(model, optimizer, loader, args, epoch)
        if hvd.rank() == 0:
            print(f"epoch {epoch} loss {loss} accuracy {accuracy}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, args.checkpoint_format.format(epoch=epoch + 1))
    print(f"rank {hvd.rank()} went from epoch {resume_from} to {args.epochs}")


if __name__ == "__main__":
    main()

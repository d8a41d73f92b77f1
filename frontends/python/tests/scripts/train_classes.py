"""A script as Horovod's users write them: arguments, a sampler per rank, averaged metrics. It knows
nothing of penstock."""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(12, 24)
        self.fc2 = torch.nn.Linear(24, 4)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(42 + hvd.rank())  # ranks start apart: broadcast_parameters is necessary
    torch.set_num_threads(1)

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(256, 12, generator=generator)
    y = x[:, :4].argmax(dim=1)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=2,
        multiprocessing_context="fork",
    )

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression,
        op=hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )

    losses = []
    for epoch in range(args.epochs):
        model.train()
        sampler.set_epoch(epoch)
        total = 0.0
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(metric_average(total / len(loader), "avg_loss"))
    if hvd.rank() == 0:
        print("losses " + " ".join(str(loss) for loss in losses) + "\n", end="")
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).reshape(1, -1)
    same = hvd.allgather(weights)
    assert all(torch.equal(row, same[0]) for row in same), "ranks end with different weights"
    print(f"rank {hvd.rank()} of {hvd.size()} done\n", end="")


if __name__ == "__main__":
    main()

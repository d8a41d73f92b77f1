"""scikit-learn's digits on a few ranks, by an installed penstock, under the package's conf/dgc.toml. Ends
in an error if the package is the checkout's package, if the model does not learn, or if ranks disagree.
"""

from pathlib import Path

import penstock
import torch
from sklearn.datasets import load_digits

import penstock.torch as hvd

RANKS, STEPS, BATCH = 4, 120, 32
CHECKOUT = Path(__file__).resolve().parents[2]


def train():
    """Rank 0's accuracy on images held out."""
    images, labels = load_digits(return_X_y=True)
    # As lists, because older versions of torch do not support the newest numpy.
    images, labels = torch.tensor(images.tolist()) / 16, torch.tensor(labels.tolist())
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    held_out, trained_on = order[:297], order[297:]
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for _ in range(STEPS):
        chosen = trained_on[torch.randint(len(trained_on), (BATCH,))]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    sums = hvd.allgather_object([float(parameter.detach().double().sum()) for parameter in model.parameters()])
    assert all(one == sums[0] for one in sums), f"ranks hold different models: {sums}"
    with torch.no_grad():
        return float((model(images[held_out]).argmax(1) == labels[held_out]).double().mean())


def main():
    assert CHECKOUT not in Path(penstock.__file__).resolve().parents, f"{penstock.__file__} is the checkout's"
    hvd.init(config="conf/dgc.toml")
    assert hvd.size() == RANKS, f"{hvd.size()} ranks, expected {RANKS}"
    accuracy = train()
    assert accuracy > 0.8, f"{accuracy:.3f} of the digits recognised, expected more than 0.8"
    if hvd.rank() == 0:
        print(f"{accuracy:.3f} of the digits held out recognised, on {hvd.size()} ranks")
    hvd.shutdown()


if __name__ == "__main__":
    main()

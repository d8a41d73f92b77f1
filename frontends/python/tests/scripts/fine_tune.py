"""Usual code for fine-tuning: groups of parameters with and without decay, accumulation,
clipping of averages, and objects of any kind gathered for the evaluation. It knows nothing of
penstock."""

import pickle

import torch

import horovod.torch as hvd

ACCUMULATED, STEPS = 2, 12


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(40, 16)
        self.body = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(16, 2)

    def forward(self, tokens):
        return self.head(self.body(self.words(tokens)).mean(1))


def make_optimizer(model):
    plain = ("bias", "norm1.weight", "norm2.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": 0.01},
        {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=5e-3)


def gather_objects(value):
    """Objects of any size from all ranks, as bytes of unequal length."""
    data = torch.tensor(list(pickle.dumps(value)), dtype=torch.uint8)
    sizes = hvd.allgather(torch.tensor([len(data)])).tolist()
    gathered = bytes(hvd.allgather(data).tolist())
    values = []
    for size in sizes:
        values.append(pickle.loads(gathered[:size]))
        gathered = gathered[size:]
    return values


def batch(step):
    generator = torch.Generator().manual_seed(1000 * step + hvd.rank())
    tokens = torch.randint(40, (8, 6), generator=generator)
    return tokens, (tokens < 20).sum(1).gt(3).long()


def evaluate(model):
    model.eval()
    mine = {}
    with torch.no_grad():
        for question in range(hvd.rank(), 9, hvd.size()):
            tokens, wanted = batch(500 + question)
            mine[question] = (model(tokens).argmax(1) == wanted).float().mean().item()
    model.train()
    answers = {}
    for part in gather_objects(mine):
        answers.update(part)
    return answers


def main():
    hvd.init()
    torch.manual_seed(hvd.rank())
    torch.set_num_threads(1)
    options = hvd.broadcast_object({"seed": 3, "clip": 1.0} if hvd.rank() == 0 else None, root_rank=0)
    model = Model()
    optimizer = make_optimizer(model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=ACCUMULATED
    )
    optimizer.zero_grad()
    losses = []
    for step in range(STEPS):
        for part in range(ACCUMULATED):
            tokens, wanted = batch(step * ACCUMULATED + part)
            loss = torch.nn.functional.cross_entropy(model(tokens), wanted) / ACCUMULATED
            loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()
        losses.append(hvd.allreduce(loss.detach(), average=True, name="loss").item())
    answers = evaluate(model)
    assert sorted(answers) == list(range(9)), answers
    total = torch.tensor(sum(answers.values()))
    assert hvd.allreduce_(total.clone(), name="total").item() == total.item(), "ranks disagree"
    print(f"rank {hvd.rank()} of {hvd.size()} done, loss {losses[0]} to {losses[-1]}")


if __name__ == "__main__":
    main()

"""ddp.py - PyTorch trains in parallel on CPUs: torchrun --nproc-per-node 2 ddp.py"""
import torch
import torch.distributed as dist

dist.init_process_group("tutti")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())   # each rank has rows of its own
for step in range(200):
    x = torch.randn(64, 4)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
print(f"weights {model.module.weight.mean().item():.2f}")
dist.destroy_process_group()

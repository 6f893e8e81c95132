"""What the optimizers of raggrad.torch.optim share."""

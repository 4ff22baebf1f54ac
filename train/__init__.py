"""The trainer: streams shards, trains a VAE and a text-conditioned latent denoiser."""

"""diffusers: a few steps of every scheduler, and models with tiny configurations."""
import inspect
import random

import torch

import torchvision_ops
from wild_program import PassedOver, Program

torchvision_ops.declare()
import diffusers  # noqa: E402
# noqa: E402,F401  imported by all of them, once for all children
from diffusers import DDIMScheduler, UNet2DConditionModel

BLOCKS = dict(block_out_channels=(8, 16), norm_num_groups=4)
CROSS = dict(down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
             up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
MODELS = {
    "UNet2DModel": (dict(sample_size=16, layers_per_block=1, attention_head_dim=4, **BLOCKS,
                         down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                         up_block_types=("AttnUpBlock2D", "UpBlock2D")), lambda: (image(3, 16), torch.tensor([3]))),
    "UNet2DConditionModel": (dict(sample_size=16, layers_per_block=1, cross_attention_dim=8, attention_head_dim=4,
                                  **BLOCKS, **CROSS),
                             lambda: (image(4, 16), torch.tensor([3]), torch.randn(1, 5, 8))),
    "UNet3DConditionModel": (dict(sample_size=8, layers_per_block=1, cross_attention_dim=8, attention_head_dim=4,
                                  **BLOCKS, down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
                                  up_block_types=("UpBlock3D", "CrossAttnUpBlock3D")),
                             lambda: (torch.randn(1, 4, 2, 8, 8), torch.tensor([3]), torch.randn(1, 5, 8))),
    "UNet1DModel": (dict(sample_size=32, block_out_channels=(8, 16, 16)), lambda: (torch.randn(1, 14, 32)[:, :2],
        torch.tensor([3]))),
    "AutoencoderKL": (dict(**BLOCKS, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",
                           ) * 2),
                      lambda: (image(3, 16),)),
    "AutoencoderTiny": (dict(encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
                             num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)), lambda: (image(3, 16),)),
    "AsymmetricAutoencoderKL": (dict(norm_num_groups=4, down_block_out_channels=(8, 8), up_block_out_channels=(8, 8),
                                     down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",
                                     ) * 2),
                                lambda: (image(3, 16),)),
    "VQModel": (dict(**BLOCKS, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                     num_vq_embeddings=16), lambda: (image(3, 16),)),
    "Transformer2DModel": (dict(num_attention_heads=2, attention_head_dim=4, in_channels=8, norm_num_groups=4,
                                cross_attention_dim=8),
                           lambda: (image(8, 8), torch.randn(1, 5, 8))),
    "DiTTransformer2DModel": (dict(num_attention_heads=2, attention_head_dim=4, in_channels=4, num_layers=2,
                                   sample_size=8, norm_num_groups=4),
                              lambda: (image(4, 8), torch.tensor([3]), torch.tensor([1]))),
    "PriorTransformer": (dict(num_attention_heads=2, attention_head_dim=4, num_layers=2, embedding_dim=8,
                              num_embeddings=7, additional_embeddings=4),
                         lambda: (torch.randn(1, 8), torch.tensor([3]), torch.randn(1, 8), torch.randn(1, 7, 8))),
    "SD3Transformer2DModel": (dict(sample_size=8, patch_size=1, in_channels=4, num_layers=2, attention_head_dim=8,
                                   num_attention_heads=2, caption_projection_dim=16, joint_attention_dim=8,
                                   pooled_projection_dim=8, out_channels=4),
                              lambda: (image(4, 8), torch.randn(1, 5, 8), torch.randn(1, 8), torch.tensor([3]))),
    "FluxTransformer2DModel": (dict(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1,
                                    attention_head_dim=16, num_attention_heads=2, joint_attention_dim=8,
                                    pooled_projection_dim=8, axes_dims_rope=(4, 4, 8)),
                               lambda: dict(hidden_states=torch.randn(1, 16, 4),
                                            encoder_hidden_states=torch.randn(1, 5, 8),
                                            pooled_projections=torch.randn(1, 8), timestep=torch.tensor([1.0]),
                                            img_ids=torch.randn(16, 3), txt_ids=torch.randn(5, 3))),
    "PixArtTransformer2DModel": (dict(num_attention_heads=2, attention_head_dim=4, in_channels=4, out_channels=8,
                                      num_layers=2, sample_size=8, cross_attention_dim=8, caption_channels=8,
                                      use_additional_conditions=False),
                                 lambda: dict(hidden_states=image(4, 8), encoder_hidden_states=torch.randn(1, 5, 8),
                                              timestep=torch.tensor([3]),
                                              added_cond_kwargs=dict(resolution=None, aspect_ratio=None))),
    "ControlNetModel": (dict(layers_per_block=1, cross_attention_dim=8, attention_head_dim=4, **BLOCKS,
                             conditioning_embedding_out_channels=(8, 16), down_block_types=CROSS["down_block_types"]),
                        lambda: (image(4, 16), torch.tensor([3]), torch.randn(1, 5, 8), image(3, 32))),
    "T2IAdapter": (dict(channels=[8, 16], num_res_blocks=1, downscale_factor=4), lambda: (image(3, 32),)),
    "AutoencoderKLTemporalDecoder": (dict(block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
                                          layers_per_block=1),
                                     lambda: (image(3, 16),)),
    "UVit2DModel": (dict(hidden_size=16, cond_embed_dim=8, micro_cond_encode_dim=2, micro_cond_embed_dim=10,
                         encoder_hidden_size=8, vocab_size=33, codebook_size=32, in_channels=8, block_out_channels=8,
                         num_res_blocks=1, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                         block_num_heads=1, sample_size=8),
                    lambda: (torch.randint(0, 32, (1, 8, 8)), torch.randn(1, 5, 8), torch.randn(1, 8),
                             torch.randn(1, 5))),
    "StableCascadeUNet": (dict(in_channels=4, out_channels=4, conditioning_dim=8, block_out_channels=(8, 16),
                               num_attention_heads=(0, 2), down_num_layers_per_block=(1, 1),
                               up_num_layers_per_block=(1, 1), clip_text_in_channels=8, clip_text_pooled_in_channels=8,
                               clip_image_in_channels=8, timestep_ratio_embedding_dim=8,
                               down_blocks_repeat_mappers=(1, 1), up_blocks_repeat_mappers=(1, 1),
                               block_types_per_layer=(("SDCascadeResBlock", "SDCascadeTimestepBlock"),) * 2),
                          lambda: dict(sample=image(4, 8), timestep_ratio=torch.tensor([0.5]),
                                       clip_text_pooled=torch.randn(1, 1, 8))),
}
STEPS = 4


def image(channels, side):
    return torch.randn(1, channels, side, side)


def names(seed):
    found = list(MODELS) + sorted(n for n in dir(diffusers.schedulers) if n.endswith("Scheduler"))
    random.Random(seed).shuffle(found)
    return found


def denoised(cls):
    def run(x, noise):
        scheduler = cls()
        scheduler.set_timesteps(STEPS)
        for t in scheduler.timesteps:
            given = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
            x = scheduler.step(given * 0.1 + noise * 0.5, t, x, return_dict=False)[0]
        return x
    return run


def make(name):
    torch.manual_seed(0)
    cls = getattr(diffusers, name, None) or getattr(diffusers.schedulers, name)
    if name in MODELS:
        config, inputs = MODELS[name]
        known = inspect.signature(cls.__init__).parameters
        model, given = cls(**{k: v for k, v in config.items() if k in known}).eval(), inputs()
        return Program(model, (), given) if isinstance(given, dict) else Program(model, given)
    if "torch" not in (inspect.getsource(cls) or ""):
        raise PassedOver("no torch in it")
    return Program(denoised(cls), (image(4, 8), image(4, 8)))

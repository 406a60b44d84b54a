#include "cli/options/eval_options.h"

#include "cli/options/backend_option.h"
#include "cli/options/guidance_range_option.h"
#include "cli/options/parallel_choice.h"
#include "cli/options/tile_option.h"
#include "cli/options/weights_option.h"

const weft_option weft_eval_options[] = {
    {"--model", "DIR", NULL,
     "model folder; for vae also the folder of the VAE alone. Not for videos"},
    {"--json", "FILE", NULL, "also write all figures, and those of each clip or prompt, as JSON"},
    {"--shards", "DIR", NULL, "data shards of the clips; also s3://BUCKET/PREFIX", .group = "vae",
     .common = true, .remote = true},
    {"--split", "NAME", "heldout", "data shards to read, NAME-*.tar; \"\" for all", .group = "vae"},
    {"--frames", "N", "17",
     "frames of a clip; must fit the autoencoder. cache: for folders without weft.json",
     .group = "vae"},
    {"--height", "N", "64", "height in pixels, a multiple of the size of a latent; as --frames",
     .group = "vae"},
    {"--width", "N", "64", "width in pixels, a multiple of the size of a latent; as --frames",
     .group = "vae"},
    {"--fps", "F", "0", "frame rate of the clips; 0: the video's own", .group = "vae"},
    {"--limit", "N", "0", "largest number of clips. 0: all", .group = "vae"},
    {"--sheet", "FILE.png", NULL, "write originals above reconstructions", .group = "vae"},
    {"--heldout", "FILE", NULL, "heldout.json of `weft synth`", .group = "prompts", .common = true},
    {"--seeds", "N", "4", "seeds for each held-out combination", WEFT_ALSO("--repeats"),
     .group = "prompts"},
    {"--training-combinations", "N", "16", "combinations of the training set, for comparison",
     WEFT_ALSO("--seen"), .group = "prompts"},
    {"--seed", "N", "1000", "seed of the first video; prompts and cache", .group = "prompts"},
    {"--steps", "N", "20", "denoising steps; prompts and cache", .group = "prompts"},
    {"--guidance-scale", "G", "4", "guidance scale; prompts and cache", WEFT_ALSO("--guidance"),
     .group = "prompts"},
    WEFT_GUIDED_OPTIONS,
    {"--prompts", "FILE", NULL,
     "prompts, one per line; videos: of the videos in the order of names, by default the prompts "
     "stored in the files",
     .group = "cache", .common = true},
    {"--setting", "TEXT", NULL,
     "setting to compare, e.g. \"feature-cache=fast\", \"guidance-end=0.6\" or \"sampler=unipc "
     "steps=15\"; by default the usual settings",
     WEFT_ALSO("--try"), .repeated = true, .group = "cache", .common = true},
    {"--timing-runs", "N", "1", "runs of each setting, in turn; the minimum seconds count",
     WEFT_ALSO("--least"), .group = "cache"},
    {"--lpips", "BACKBONE,HEADS", NULL,
     "also compute LPIPS; torchvision's AlexNet or VGG16 and the heads of the package lpips",
     .group = "cache"},
    {"--videos", "PATH", NULL, "folder of videos, or one video", .group = "videos", .common = true},
    {"--clip", "DIR", NULL,
     "folder of a CLIPModel with its tokenizer: CLIP score and background consistency",
     .group = "videos", .common = true},
    {"--dino", "DIR", NULL, "folder of a ViTModel such as DINO: subject consistency",
     .group = "videos", .common = true},
    {"--features", "FILE", NULL,
     "features of the videos by a video network, .npy or .safetensors of [videos, features]",
     .group = "videos"},
    {"--reference-features", "FILE", NULL,
     "features of real videos by the same network: prints the Frechet distance", .group = "videos"},
    {"--batch-size", "N", "8", "videos denoised together", WEFT_ALSO("--batch"),
     .group = "prompts"},
    {"--lora", "FILE[:WEIGHT]", NULL, "adapter, as for `weft generate`", .repeated = true,
     .group = "prompts"},
    {"--parallel", "KEY=VALUE", NULL,
     "how the ranks split the work; prompts: as for `weft generate`, vae: clips over dp",
     .repeated = true, .group = "parallelism"},
    WEFT_LAYOUT_OPTIONS,
    WEFT_BACKEND_OPTION,
    WEFT_WEIGHTS_OPTIONS,
    {"--out", "DIR", "evaluated", "folder for the videos and sheet.png", .group = "prompts"},
    WEFT_TILE_OPTIONS,
};
_Static_assert(WEFT_COUNT(weft_eval_options) == WEFT_EVAL_OPTIONS, "count of options");

const weft_option_group weft_eval_groups[] = {
    {"vae", "options of `weft eval vae`"},
    {"prompts", "options of `weft eval prompts`"},
    {"cache", "options of `weft eval cache`"},
    {"videos", "options of `weft eval videos`"},
    {"guidance", "share of the steps with guidance"},
    {"memory", "memory limit, weight types and streaming, VAE tiles"},
    {"parallelism", "layout of the ranks"},
    {0},
};

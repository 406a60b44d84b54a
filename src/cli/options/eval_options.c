#include "cli/options/eval_options.h"

#include "cli/options/backend_option.h"
#include "cli/options/guidance_range_option.h"
#include "cli/options/parallel_choice.h"
#include "cli/options/tile_option.h"
#include "cli/options/weights_option.h"

const weft_option weft_eval_options[] = {
    {"--model", "DIR", NULL,
     "model folder; for vae also the folder of the VAE alone. Not for videos", .copied = true},
    {"--json", "FILE", NULL, "also write all figures, and those of each clip or prompt, as JSON",
     .result = WEFT_RESULT_FILE},
    {"--shards", "DIR", NULL, "data shards of the clips; also s3://BUCKET/PREFIX", .group = "vae",
     .common = true, .remote = true},
    {"--split", "NAME", "heldout", "data shards to read, NAME-*.tar; \"\" for all", .group = "vae"},
    {"--frames", "N", "17",
     "frames of a clip; must fit the autoencoder. savings, int8: for folders without weft.json",
     .group = "vae"},
    {"--height", "N", "64", "height in pixels, a multiple of the size of a latent; as --frames",
     .group = "vae"},
    {"--width", "N", "64", "width in pixels, a multiple of the size of a latent; as --frames",
     .group = "vae"},
    {"--fps", "F", "0", "frame rate of the clips; 0: the video's own", .group = "vae"},
    {"--limit", "N", "0", "largest number of clips. 0: all", .group = "vae"},
    {"--sheet", "FILE.png", NULL, "write originals above reconstructions", .group = "vae",
     .result = WEFT_RESULT_FILE},
    {"--heldout", "FILE", NULL, "heldout.json of `weft synth`", .group = "prompts", .common = true,
     .copied = true},
    {"--seeds", "N", "4", "seeds for each held-out combination", WEFT_ALSO("--repeats"),
     .group = "prompts"},
    {"--training-combinations", "N", "16", "combinations of the training set, for comparison",
     WEFT_ALSO("--seen"), .group = "prompts"},
    {"--seed", "N", "1000", "seed of the first video; prompts, savings, int8 and pairs",
     .group = "prompts"},
    {"--steps", "N", "0",
     "denoising steps; prompts, savings, int8 and pairs. 0: of a distilled model or adapter, or 20",
     .group = "prompts"},
    {"--guidance-scale", "G", NULL,
     "guidance scale; prompts, savings, int8 and pairs. By default the model's own, or 4",
     WEFT_ALSO("--guidance"), .group = "prompts"},
    WEFT_GUIDED_OPTIONS,
    {"--prompts", "FILE", NULL,
     "prompts, one per line, also for pairs; int8: by default eight prompts; videos: of the videos "
     "in the order of "
     "names, by default the prompts "
     "stored in the files",
     .group = "savings", .common = true, .copied = true},
    {"--setting", "TEXT", NULL,
     "setting to compare, e.g. \"feature-cache=fast\", \"guidance-end=0.6\" or \"sampler=unipc "
     "steps=15\"; by default the usual settings",
     WEFT_ALSO("--try"), .repeated = true, .group = "savings", .common = true},
    {"--psnr", "DB", "38",
     "int8: least mean PSNR of the videos against f32. Other videos have up to 3 dB less",
     .group = "savings"},
    {"--image", "FILE", NULL, "first frame of the videos, for models that need one",
     .group = "savings", .copied = true},
    {"--last-image", "FILE", NULL, "last frame of the videos, for models that need one",
     .group = "savings", .copied = true},
    {"--control", "FILE", NULL, "control video or image, for models that need one",
     .group = "savings", .copied = true},
    {"--face", "FILE", NULL, "video of a face, for models that need one", .group = "savings",
     .copied = true},
    {"--mask", "FILE", NULL, "part of --control to generate, white", .group = "savings",
     .copied = true},
    {"--timing-runs", "N", "1",
     "runs of each setting, in turn; the minimum seconds count. 1: after a warm-up",
     WEFT_ALSO("--least"), .group = "savings"},
    {"--lpips", "BACKBONE,HEADS", NULL,
     "also compute LPIPS; torchvision's AlexNet or VGG16 and the heads of the package lpips",
     .group = "savings", .copied = true},
    {"--videos", "PATH", NULL, "folder of videos, or one video", .group = "videos", .common = true,
     .copied = true},
    {"--clip", "DIR", NULL,
     "folder of a CLIPModel with its tokenizer: CLIP score and background consistency",
     .group = "videos", .common = true, .copied = true},
    {"--dino", "DIR", NULL, "folder of a ViTModel such as DINO: subject consistency",
     .group = "videos", .common = true, .copied = true},
    {"--amt", "FILE", NULL, "weights of AMT-S (amt-s.pth): motion smoothness", .group = "videos",
     .common = true, .copied = true},
    {"--features", "FILE", NULL,
     "features of the videos by a video network, .npy or .safetensors of [videos, features]",
     .group = "videos", .copied = true},
    {"--reference-features", "FILE", NULL,
     "features of real videos by the same network: prints the Frechet distance", .group = "videos",
     .copied = true},
    {"--other-model", "DIR", NULL, "second model; --model is the first", .group = "pairs",
     .common = true, .copied = true},
    {"--other-videos", "DIR", NULL,
     "output folder of `weft generate` with the second model; --videos is the first model's",
     .group = "pairs", .common = true, .copied = true},
    {"--page", "FILE.html", "pairs.html", "page to write", .group = "pairs", .common = true,
     .result = WEFT_RESULT_FILE},
    {"--blind", NULL, NULL,
     "hide which model is which until the reader of the page asks; --seed draws the sides",
     .group = "pairs", .common = true},
    {"--batch-size", "N", "8", "videos denoised together", WEFT_ALSO("--batch"),
     .group = "prompts"},
    {"--lora", "FILE[:WEIGHT]", NULL, "adapter, as for `weft generate`", .repeated = true,
     .group = "prompts", .copied = true},
    {"--parallel", "KEY=VALUE", NULL,
     "how the ranks split the work; prompts: as for `weft generate`, vae: clips over dp",
     .repeated = true, .group = "parallelism"},
    WEFT_LAYOUT_OPTIONS,
    WEFT_BACKEND_OPTION,
    WEFT_WEIGHTS_OPTIONS,
    {"--out", "DIR", "evaluated", "folder for the videos and sheet.png; also for pairs",
     .group = "prompts", .result = WEFT_RESULT_FOLDER},
    WEFT_TILE_OPTIONS,
};
_Static_assert(WEFT_COUNT(weft_eval_options) == WEFT_EVAL_OPTIONS, "count of options");

const weft_option_group weft_eval_groups[] = {
    {"vae", "options of `weft eval vae`"},
    {"prompts", "options of `weft eval prompts`"},
    {"savings", "options of `weft eval savings`; int8 has --prompts, --psnr and the images"},
    {"videos", "options of `weft eval videos`"},
    {"pairs", "options of `weft eval pairs`, in addition to the options of videos"},
    {"guidance", "share of the steps with guidance"},
    {"memory", "memory limit, weight types and streaming, VAE tiles"},
    {"parallelism", "layout of the ranks"},
    {0},
};

const char weft_eval_details[] =
    "vae: PSNR and SSIM of reconstructions of a split. prompts: accuracy of colour,\n"
    "shape and direction in generated videos. savings: seconds and quality of feature\n"
    "caches, shorter guidance, other samplers, bf16 and int8. int8: chooses the layers\n"
    "for --weights int8. videos: scores of any videos. pairs: a page that shows videos\n"
    "of two models next to each other.\n"
    "\n"
    "vae prints the mean PSNR and SSIM, and the same figures of clips averaged over\n"
    "boxes of the VAE's compression (4x8x8). A useful VAE is better. PSNR compares\n"
    "8-bit RGB frames, SSIM their luma. Identical videos are counted and not in the\n"
    "mean PSNR. Under mpirun each rank evaluates other clips; the figures equal the\n"
    "figures of one rank.\n"
    "\n"
    "prompts generates videos of moving shapes, as `weft synth` writes them, for word\n"
    "combinations that training lacks and for some that it has. Image analysis fits a\n"
    "plane to the background and reads hue, outline and course of the remaining\n"
    "object. The share of correct prompts is printed next to chance. Under mpirun the\n"
    "ranks split the work by --parallel; values agree with those of one rank within\n"
    "1e-5.\n"
    "\n"
    "savings generates videos with all steps, then with each setting. It prints the\n"
    "denoising seconds of a video, the gain, PSNR, SSIM and LPIPS between both, and\n"
    "the number of identical videos.\n"
    "\n"
    "int8 measures the error of each layer in int8 on eight prompts, and writes the\n"
    "layers that keep their type to int8.json in the model's folder. The videos then\n"
    "have the PSNR --psnr against f32. The file also has factors that smooth outlier\n"
    "channels of the inputs of layers.\n"
    "\n"
    "videos scores files without their model, as VBench does. flicker compares each\n"
    "frame with the one before, and is meant for scenes that do not move. With --clip\n"
    "also the CLIP score (100 x cosine of prompt and frame) and the consistency of the\n"
    "background, with --dino the consistency of the subject: cosines between features\n"
    "of a frame, the frame before, and the first. With --amt the motion smoothness:\n"
    "each second frame is compared with a frame that AMT-S computes from both\n"
    "neighbours; frames below 113 pixels have no such score. --features and\n"
    "--reference-features give the Frechet video distance of the network that made\n"
    "them. Frames are scaled as in VBench, without a filter. The CLIP score scales\n"
    "them as CLIP does.\n"
    "\n"
    "pairs writes one page with the videos of two models for the same prompts and\n"
    "seeds. The page loads no other file. Both videos of a pair play together; keys\n"
    "select a pair, stop, step by frames, and vote. Settings and scores of `videos`\n"
    "are next to each other. A button saves the votes as votes.json. With --model and\n"
    "--other-model the videos are generated first, into a/ and b/ of --out.\n";

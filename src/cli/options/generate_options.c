#include "cli/options/generate_options.h"

#include "cli/options/backend_option.h"
#include "cli/options/lora_option.h"
#include "cli/options/method_options.h"
#include "cli/options/parallel_choice.h"
#include "cli/options/tile_option.h"
#include "cli/options/weights_option.h"

const weft_option weft_generate_options[] = {
    {"--model", "DIR", NULL,
     "model folder in diffusers format; as `weft train` writes it or as published: transformer/, "
     "text_encoder/, tokenizer/, vae/, scheduler/",
     .required = true, .group = "model", .common = true, .copied = true},
    WEFT_LORA_OPTION,
    {"--prompt", "TEXT", NULL, "text that describes the video", .repeated = true,
     .group = "conditioning", .common = true},
    {"--prompts", "FILE", NULL,
     "file of prompts; one per line (# starts a comment), or JSON lines with \"prompt\" and "
     "optionally \"negative\", \"seed\", \"frames\", \"height\", \"width\", \"steps\", "
     "\"guidance\", \"out\" (a name below --out)",
     .group = "conditioning", .common = true, .copied = true},
    {"--negative-prompt", "TEXT", "",
     "text for the unconditional branch of guidance; empty: the empty prompt",
     WEFT_ALSO("--negative"), .group = "conditioning"},
    {"--image", "FILE", NULL,
     "first frame of the video, or an image to edit; needs a model with image conditioning "
     "(--help image-models). Flux 2 and Qwen-Image-Edit Plus edit several",
     .repeated = true, .group = "conditioning", .common = true, .copied = true},
    {"--last-image", "FILE", NULL, "last frame of the video; needs a model with image conditioning",
     .group = "conditioning", .copied = true},
    WEFT_METHOD_CONDITIONING,
    {"--video", "FILE", NULL, "video or image to change (video-to-video); works with any model",
     .group = "conditioning", .copied = true},
    {"--strength", "S", "0",
     "share of the denoising steps to run on --video; 1 keeps little of the video. 0: 0.8, or 1 "
     "with "
     "--mask or --outpaint",
     .group = "conditioning"},
    {"--control", "FILE", NULL,
     "control video or image (depth, pose, or a video to edit), for Wan VACE, which generates from "
     "text only without the option, for Wan Animate (poses), and for models trained with "
     "condition: control",
     .group = "conditioning", .copied = true},
    {"--face", "FILE", NULL,
     "video of a face, whose expressions the character of --image gets; for Wan Animate. With "
     "--video and --mask the character replaces what is white in the mask",
     .group = "conditioning", .copied = true},
    {"--refine", "FILE", NULL,
     "coarse video that is enlarged to --width, --height and twice the frames, noised to "
     "--refine-level and denoised; for LongCat-Video with its refinement adapter (--lora). --image "
     "or --given-frames give its first frames",
     .group = "conditioning", .copied = true},
    {"--mask", "FILE", NULL,
     "image or video that selects what to generate in --video or --control; white is generated, "
     "black is kept",
     .group = "conditioning", .copied = true},
    {"--frames", "N", "0",
     "frames of the video; must fit the autoencoder (Wan: 1 + 4 n). 0: the model's own",
     .group = "size", .common = true},
    {"--height", "N", "0",
     "height in pixels; a multiple of the size of a token. 0: the model's own", .group = "size",
     .common = true},
    {"--width", "N", "0", "width in pixels; a multiple of the size of a token. 0: the model's own",
     .group = "size", .common = true},
    {"--fps", "F", "0",
     "frame rate of the files; also the conditioning of models that take a frame rate (Cosmos, "
     "LTX, STDiT3). 0: the model's own",
     .group = "size"},
    WEFT_METHOD_SIZE,
    {"--steps", "N", "0", "denoising steps. 0: of a distilled model or adapter, or 30",
     .group = "sampling", .common = true},
    {"--seed", "N", "0", "seed of the first prompt; later prompts use N+1, N+2, ...",
     .group = "sampling", .common = true},
    WEFT_METHOD_SAMPLING,
    {"--init-latents", "FILE.npy", NULL,
     "initial latents in place of random noise; f32 in the shape of --latents-npy. With several "
     "prompts, or windows of --window-mode continue, their latents follow each other",
     WEFT_ALSO("--noise"), .group = "sampling", .copied = true},
    {"--guidance-scale", "G", NULL,
     "scale of classifier-free guidance, or of embedded guidance; 1 disables guidance and halves "
     "the work. By default the model's own (1 for models distilled to need none), or 4",
     WEFT_ALSO("--guidance"), .group = "guidance", .common = true},
    WEFT_METHOD_GUIDANCE,
    WEFT_BACKEND_OPTION,
    WEFT_WEIGHTS_OPTIONS,
    WEFT_TILE_OPTIONS,
    {"--batch-size", "N", "1", "prompts denoised together; more is faster and needs more memory",
     WEFT_ALSO("--batch"), .group = "memory"},
    {"--parallel", "KEY=VALUE", NULL,
     "how the ranks of mpirun split the work: a key of the config section `parallel`, e.g. tp=2; "
     "keys: cfg, dp, fsdp, tp, sequence, cp, context, order. cfg=2 splits the CFG branches, dp "
     "splits the prompts. auto: the layout with the lowest estimate of `weft plan generate`",
     .repeated = true, .group = "parallelism"},
    {"--comm-overlap", "SPEC", "",
     "overlap of communication and compute; heads=N: head groups (with cp). chunks=N: token chunks "
     "(with tp). time=4,space=4,early_time=1,early_space=3: layer slices of models with spatial "
     "and temporal layers, and how many are exchanged a layer early (with cp). off: heads=1,"
     "chunks=1. auto, or heads=auto: the lowest estimate. Empty: the default of the model",
     WEFT_ALSO("--slices"), .group = "parallelism"},
    WEFT_LAYOUT_OPTIONS,
    {"--pass", "NAME=off", NULL,
     "disable a pass over the graphs; `weft inspect graph --passes` lists the passes",
     .repeated = true, .group = "parallelism"},
    {"--out", "PATH", "generated",
     "output file or folder; .mp4, .webm, .gif, or .png for one frame", .group = "output",
     .common = true, .result = WEFT_RESULT_VIDEO},
    {"--resume", NULL, NULL,
     "continue a stopped run; finished videos are kept, saved latents are decoded, and interrupted "
     "sampling continues bitwise identically",
     .group = "output", .common = true},
    {"--split-states", NULL, NULL,
     "save the sampler state of a batch per video, so that a video resumes alone or in another "
     "batch, with values that agree to rounding",
     .group = "output"},
    {"--sheet", "FILE.png", NULL, "also write a contact sheet, one row per prompt",
     .group = "output", .result = WEFT_RESULT_FILE},
    {"--frames-npy", NULL, NULL,
     "also write the decoded values as .npy; f32 (frames, height, width, 3) in [-1, 1]",
     WEFT_ALSO("--raw"), .group = "output"},
    {"--latents-npy", NULL, NULL,
     "also write the latents as .latents.npy; f32 (frames, rows, columns, channels), normalised",
     WEFT_ALSO("--latents"), .group = "output"},
    {"--preview-interval", "STEPS", "0",
     "steps between images of the middle frame, written as .preview.png. 0: none",
     WEFT_ALSO("--preview"), .group = "output"},
    {"--save-latents", NULL, NULL,
     "keep the latents as .latents.safetensors after they are decoded", WEFT_ALSO("--keep-latents"),
     .group = "output"},
    {"--decode-latents", "FILE", NULL,
     "only decode latents of --save-latents with the VAE of --model; several files need a folder "
     "as --out",
     .repeated = true, WEFT_ALSO("--decode"), .group = "output", .copied = true},
    {"--trace", "DIR", NULL,
     "write the timeline of the last denoising step as DIR/trace-<rank>.json; for Perfetto and "
     "`weft simulate`",
     .group = "output", .result = WEFT_RESULT_FOLDER},
};
_Static_assert(WEFT_COUNT(weft_generate_options) == WEFT_GENERATE_OPTIONS, "count of options");

const weft_option_group weft_generate_groups[] = {
    {"model", "model folder and LoRA adapters"},
    {"conditioning", "prompts, images, videos, masks, identity"},
    {"size", "frames, pixels, frame rate, temporal windows"},
    {"sampling", "steps, seed, sampler, timestep shift, feature cache"},
    {"guidance", "scale and method of classifier-free guidance"},
    {"memory", "backend, memory limit, weight types and streaming, VAE tiles, batch"},
    {"parallelism", "layout of the ranks, communication overlap, passes"},
    {"output", "files, contact sheet, arrays, latents, resume, timeline"},
    {0},
};

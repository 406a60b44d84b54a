#include "base/interrupt.h"
#include "cli/generate_run.h"
#include "cli/options/generate_options.h"
#include "cli/options/help_generate.h"

static weft_status run_generate(const weft_args *args)
{
    weft_interrupt_catch();
    return weft_generate_run(args, NULL, NULL, true);
}

const weft_verb weft_verb_generate = {
    .name = "generate",
    .summary = "generate videos from prompts, images and videos",
    .usage = "--model DIR --prompt TEXT [--out FILE.mp4] [options]",
    .details =
        "Prints the predicted peak memory, denoises, and decodes the latents as a stream.\n"
        "Any model also changes a video (--video), a part of it (--mask) or its\n"
        "surroundings (--outpaint). Under mpirun the ranks share the work.\n"
        "\n"
        "Decoding takes one latent frame at a time, so its memory does not grow with the\n"
        "number of frames. Frames that do not fit into memory are decoded in tiles\n"
        "(--vae-tile), under mpirun by all ranks. A size that does not fit even with\n"
        "tiles is an error before the first step.\n"
        "\n"
        "The extension of --out, or of \"out\" in a list, selects the format: .mp4 (H.264),\n"
        ".webm (VP9), .gif (256 colours per frame, at most 50 frames/s), .png (one frame,\n"
        "lossless). The file's metadata has prompt, seed, steps and guidance scale. A\n"
        "folder as --out gets 0000.mp4, 0001.mp4, ... and prompts.jsonl, which has one\n"
        "line per finished video with its prompt, seed, settings and seconds. Videos of\n"
        "equal size, steps and guidance are denoised --batch-size at a time.\n"
        "\n"
        "The noise of a video depends only on its seed. With the same --batch-size the\n"
        "video is bitwise identical. With another batch size or number of ranks values\n"
        "differ by up to 1e-5, because sums have another order. Under mpirun each rank\n"
        "generates its own videos if the batches suffice. Otherwise ranks split the\n"
        "denoising batch (prompts x CFG branches). --parallel also splits the\n"
        "transformer.\n"
        "\n"
        "The state of sampling is saved as .sampling.safetensors next to the video, and\n"
        "the latents as .latents.safetensors before they are decoded. After Ctrl-C, a\n"
        "kill or a failed decoding the same command with --resume continues.\n",
    .see = "docs/how-to/generate.md, docs/explanation/generation.md, docs/reference/samplers.md",
    .examples = "weft generate --model runs/dit/model --prompt \"a red circle\" --out red.mp4\n"
                "weft generate --model Wan2.1-I2V --image a.png --prompt \"a dog\" --out dog.mp4\n",
    .groups = weft_generate_groups,
    .options = weft_generate_options,
    .option_count = WEFT_GENERATE_OPTIONS,
    .more = weft_help_generate,
    .min_positional = 0,
    .max_positional = 0,
    .run = run_generate,
};

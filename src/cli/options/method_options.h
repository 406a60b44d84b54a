/* Options of `weft generate` that change the work of a video, which `weft estimate` has as well. */
#ifndef WEFT_CLI_OPTIONS_METHOD_OPTIONS_H
#define WEFT_CLI_OPTIONS_METHOD_OPTIONS_H

#include "cli/options/guidance_range_option.h"
#include "cli/options/verb.h"
#include "generate/generator/generator.h"

/* Reads sizes, sampling, guidance, windows, and images with their fit, into `o`; lists of
 * timesteps are in `arena`. WEFT_E_ARG: invalid value. */
weft_status weft_args_method(const weft_args *args, weft_arena *arena, weft_generator_options *o);

/* The first option of the groups of this file among options[count] that was given; NULL: none. */
const char *weft_args_method_given(const weft_args *args, const weft_option *options, int count);

/* clang-format off */
#define WEFT_METHOD_CONDITIONING \
    {"--max-sequence-length", "N", "0", \
     "tokens of a prompt that the model gets, at most as many as it was trained on; longer " \
     "prompts are truncated. 0: the model's own", \
     .group = "conditioning"}, \
    {"--identity-image", "FILE", NULL, \
     "image of the person or thing that the video shows; needs a model with an identity encoder " \
     "(`identity` in the config of `weft train`), which may take several", \
     WEFT_ALSO("--identity"), .repeated = true, .group = "conditioning", .copied = true}, \
    {"--identity-scale", "S", "1", \
     "strength of --identity-image, 0 to 10; 0 ignores the images, 1 is the strength of training", \
     .group = "conditioning"}, \
    {"--identity-encoder", "DIR", NULL, \
     "folder of the identity encoder; by default `identity` in --model", \
     WEFT_ALSO("--identity-module"), .group = "conditioning", .copied = true}, \
    {"--reference-image", "FILE", NULL, \
     "image of a person or thing that the video shows, fitted onto white; for Wan VACE, with or " \
     "without --control. Each image is a further latent frame of the work", \
     .repeated = true, .group = "conditioning", .copied = true}, \
    {"--control-scale", "S", "1", \
     "strength of --control and --reference-image, 0.001 to 10, for models with control blocks " \
     "(Wan VACE, Cosmos Transfer 2.5); 1 is the strength of training", \
     .group = "conditioning"}, \
    {"--outpaint", "L,T,R,B", NULL, \
     "pixels to generate left of, above, right of and below --video; the video fills the rest", \
     .group = "conditioning"}, \
    {"--given-frames", "N", "0", \
     "last frames of --video that begin the generated video, for models that take given frames " \
     "(Cosmos 2.5: 5), or precede it (Helios). 0: --video is changed", \
     .group = "conditioning"}, \
    {"--refine-level", "T", NULL, \
     "noise level at which the refinement of --refine begins, 0.001 to 1; by default the " \
     "model's own (LongCat-Video: 0.5)", \
     .group = "conditioning"}, \
    {"--refine-frames", "HOW", "double", \
     "frames of the refined video; double: twice the frames of --refine, same: no new frames", \
     .group = "conditioning", .choices = "double same"}, \
    {"--fit", "HOW", "stretch", \
     "how images of another aspect ratio are resized; stretch (as the reference pipelines), or " \
     "crop (keep the centre)", \
     .group = "conditioning", .choices = "stretch crop"}
#define WEFT_METHOD_SIZE \
    {"--window", "N", "0", \
     "frames of a temporal window; longer videos are generated in overlapping windows that are " \
     "blended in every step. 0: one window", \
     .group = "size"}, \
    {"--window-overlap", "M", "0", \
     "frames that neighbouring windows share; 0: about a quarter, or 1 with --window-mode " \
     "continue", \
     .group = "size"}, \
    {"--window-mode", "HOW", "blend", \
     "how windows are joined; blend: all windows are denoised together, with any model. " \
     "continue: each window starts from the last frames of the previous one. This needs image " \
     "conditioning; peak memory does not grow with the number of windows. history: the same in " \
     "the latents, for models with a noise level per frame (SkyReels-V2)", \
     WEFT_ALSO("--windows"), .group = "size", .choices = "blend continue history"}, \
    {"--kv-cache", "HOW", "on", \
     "keys and values of finished blocks of frames, for causal models (causal Wan), which " \
     "generate a video block by block, and of --given-frames, for LongCat-Video; on: kept, so " \
     "that every block costs the same. off: all frames are computed in every step, to the same " \
     "result", \
     .group = "size", .choices = "on off"}, \
    {"--context-noise", "T", NULL, \
     "timestep at which a causal model sees finished blocks, 0 to 1000; by default the timestep " \
     "of its training (distill.context_noise of a model that weft trained), or 0", \
     .group = "size"}, \
    {"--sections", "ORDER", "auto", \
     "order of the sections of models that generate a video section by section (Framepack), of " \
     "--window frames; reverse, forward (Framepack F1), or auto: the order in which weft trained " \
     "the model, otherwise reverse", \
     .group = "size", .choices = "auto reverse forward"}
#define WEFT_METHOD_SAMPLING \
    {"--frame-lag", "N", "0", \
     "steps by which a block of frames is noisier than the block before it, for models with a " \
     "noise level per frame (SkyReels-V2). 0: one level", \
     .group = "sampling"}, \
    {"--block-frames", "N", "0", \
     "latent frames of a block, with --frame-lag and --window-mode history; 0: the model's own", \
     .group = "sampling"}, \
    {"--reasoning-frames", "N", "0", \
     "frames of the video in the first steps of models that edit an image (ChronoEdit), of " \
     "which the first and the last latent frame stay. 0: the frames of the video", \
     .group = "sampling"}, \
    {"--reasoning-steps", "N", "0", "steps with --reasoning-frames. 0 (default): no such steps", \
     .group = "sampling"}, \
    {"--stage-steps", "N,N,...", NULL, \
     "steps at each size of latents, from the smallest, for models that denoise small latents " \
     "first (Helios-Mid, Helios-Distilled); by default --steps in equal parts", \
     .group = "sampling"}, \
    {"--first-section-steps", "HOW", "same", \
     "steps of the first section of such a distilled model; same: as the others, double: twice " \
     "the steps", \
     .group = "sampling", .choices = "same double"}, \
    {"--sampler", "NAME", "", \
     "sampler (--help samplers); empty: the sampler of the model's scheduler", \
     .group = "sampling"}, \
    {"--eta", "E", "0", "noise that the sampler ddim adds in each step. 0: none, 1: as ddpm", \
     .group = "sampling"}, \
    {"--shift", "S", "0", "shift of the timestep schedule; 0: the model's own", \
     .group = "sampling"}, \
    {"--timesteps", "T,T,...", NULL, \
     "timesteps of the steps, from the highest, in place of the scheduler's; for classes of " \
     "which the reference takes them", \
     .group = "sampling"}, \
    {"--sigmas", "S,S,...", NULL, \
     "noise levels of the steps, from the highest and before the shift, in place of the " \
     "scheduler's; a 0 at the end is the end of the last step", \
     .group = "sampling"}, \
    {"--tail-steps", "N", NULL, \
     "last steps, at even noise levels from 0.5 on, in place of the steps of the schedule below " \
     "0.5; by default the model's own (LongCat-Video: 10 after --given-frames), or 0", \
     .group = "sampling"}, \
    {"--block-sparse", "HOW", "config", \
     "block-sparse attention, for models that were trained with and without (LongCat-Video); " \
     "on, off, or config: as the config of the model", \
     .group = "sampling", .choices = "on off config"}, \
    {"--decode-timestep", "T", "0", \
     "timestep of decoding, 0 to 1, for decoders that take one (LTX-Video from 0.9.1 on)", \
     .group = "sampling"}, \
    {"--decode-noise-scale", "S", NULL, \
     "share of noise in the decoded latents; without the option: the timestep of decoding", \
     .group = "sampling"}, \
    {"--feature-cache", "RULE", "off", \
     "reuse of block outputs between steps; off, conservative, fast (thresholds of the model's " \
     "family), or block:T, teacache:T, every:N, attention:N (docs/how-to/generate.md)", \
     WEFT_ALSO("--cache"), .group = "sampling"}
#define WEFT_METHOD_GUIDANCE \
    {"--true-cfg-scale", "G", "0", \
     "scale of classifier-free guidance in addition to embedded guidance (Flux dev, " \
     "HunyuanVideo); twice the work. 0 or 1: none", \
     .group = "guidance"}, \
    {"--guidance-method", "NAME", "", \
     "how the two branches are combined (--help methods); empty: cfg", WEFT_ALSO("--guide"), \
     .group = "guidance"}, \
    {"--zero-init-steps", "N", NULL, \
     "first steps whose prediction is 0, with the method zero_star; by default the model's own, " \
     "or 0", \
     .group = "guidance"}, \
    {"--guidance-rescale", "R", "0", \
     "share by which the prediction is rescaled to its standard deviation without guidance", \
     .group = "guidance"}, \
    {"--audio-guidance-scale", "G", NULL, \
     "guidance scale of the sound, for models that generate it (LTX-2); by default as " \
     "--guidance-scale", \
     .group = "guidance"}, \
    {"--audio-guidance-rescale", "R", NULL, \
     "--guidance-rescale of the sound; by default as --guidance-rescale", \
     .group = "guidance"}, \
    {"--stg-scale", "G", "0", \
     "spatio-temporal guidance: scale of the difference to another pass without self-attention " \
     "in --stg-blocks (LTX-2.3). 0 (default): no pass", \
     .group = "guidance"}, \
    {"--stg-blocks", "N,N,...", NULL, \
     "blocks of the transformer, from 0, that --stg-scale perturbs (LTX-2.3: 28)", \
     .group = "guidance"}, \
    {"--audio-stg-scale", "G", NULL, \
     "--stg-scale of the sound; by default as --stg-scale", \
     .group = "guidance"}, \
    {"--modality-scale", "G", "1", \
     "guidance by isolated streams: scale of the difference to another pass without attention " \
     "between video and sound (LTX-2). Up to 1 for both streams: no such pass", \
     .group = "guidance"}, \
    {"--audio-modality-scale", "G", NULL, \
     "--modality-scale of the sound; by default as --modality-scale. 0 isolates the sound", \
     .group = "guidance"}, \
    {"--guidance-scale-2", "G", NULL, \
     "guidance scale below --boundary-ratio (Wan 2.2: the low-noise expert); by default as " \
     "--guidance-scale", \
     WEFT_ALSO("--guidance-low"), .group = "guidance"}, \
    {"--boundary-ratio", "B", NULL, \
     "timestep, 0 to 1, below which transformer_2 and --guidance-scale-2 are used; by default " \
     "the model's own, if any. 0: only the transformer", \
     WEFT_ALSO("--boundary"), .group = "guidance"}, \
    WEFT_GUIDED_OPTIONS
/* clang-format on */

#endif

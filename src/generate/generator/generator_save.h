#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_SAVE_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_SAVE_H

#include "generate/generator/generator.h"

/* Call before each run of window `window` of a video, with visual.prefix_frames. `frames`
 * (prefix_frames, height, width, 3) in [-1,1] are its first frames. NULL: the inputs of the
 * options, for the first window. */
weft_status weft_generator_set_prefix_frames(weft_generator *generator, int64_t window,
                                             const float *frames);
/* Saves the state of the current batch to `path`. In a sink's `step`: the sampler state, from which
 * a run resumes. In `latents`, on its rank: the finished latents, which a resumed run decodes.
 *
 * One rank writes the file; the state is the same on all ranks. With a feature cache all ranks must
 * call this in `step`: each writes its cache to its own file next to `path`. Those files are valid
 * once rank 0 has written `path`. If one rank fails, all ranks return an error. Creates the folder
 * of `path`. */
weft_status weft_generator_save(weft_generator *generator, const char *path);
/* Saves the sampler state of one prompt of the batch, in a sink's `step`. The file is the one of a
 * batch of one, so that the video resumes alone or in another batch. Not with feature caches, which
 * belong to a batch. Creates the folder of `path`. */
weft_status weft_generator_save_video(weft_generator *generator, int64_t prompt, const char *path);
/* Whether the generator has feature caches to save. */
bool weft_generator_keeps_caches(const weft_generator *generator);
/* Removes the saved state at `path`, with the cache files of all ranks. */
void weft_generator_remove_saved(const char *path);
/* Saves the latents of a prompt, in a sink's `latents` or `frames`. `tries`: decoding begins, so a
 * later run that finds the file without a video decodes in less memory
 * (generate/generator/decode.h). */
weft_status weft_generator_save_latents(weft_generator *generator, int64_t prompt, bool tries,
                                        const char *path);
/* Restores a state of weft_generator_save. The next weft_generator_run, of at most one batch,
 * resumes after step *step, with bitwise identical results. WEFT_E_ARG names what differs: model,
 * settings, prompts or seeds. */
weft_status weft_generator_resume(weft_generator *generator, const char *path,
                                  const char *const *prompts, const uint64_t *seeds, int64_t count,
                                  int64_t *step);
/* Restores states of weft_generator_save_video, all after the same step, as weft_generator_resume
 * does. paths: [count]. A state may be of another batch size: the result then agrees to rounding
 * with an uninterrupted run. */
weft_status weft_generator_resume_videos(weft_generator *generator, char *const *paths,
                                         const char *const *prompts, const uint64_t *seeds,
                                         int64_t count, int64_t *step);

#endif

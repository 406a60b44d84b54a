/* The sound in the objective of a denoiser of video and sound.
 *
 *   batch.sound      f32 (B,S,C) audio latents, normalised
 *   batch.with_sound f32 (B) 1: the clip has sound; 0: its video trains alone, without attention
 *                    between the streams and without a loss of the sound
 *   batch.sound_key  i64 (B) key of the sound's noise, and of its timestep if it has its own
 *   batch.rejected_sound f32, like batch.sound: of the other clips, with preference.rejected
 *
 * The loss of a sample is the mean over the elements of its video and, times sound.loss_weight, the
 * mean over the elements of its sound.
 * Source: Lightricks' ltx-trainer, training_strategies/flexible.py (timesteps: separate) and
 * text_to_video.py (shared), both with the sum of the two means. */
#ifndef WEFT_TRAIN_GRAPH_SOUND_STREAM_H
#define WEFT_TRAIN_GRAPH_SOUND_STREAM_H

#include "train/graph/objective.h"

typedef struct weft_sound_stream {
    weft_value data, noise, with_sound; /* WEFT_NONE: the run has no sound */
    weft_value key;
    weft_noise_process_config noised;
    weft_noised level;
} weft_sound_stream;

/* Adds the inputs and the noise. */
weft_sound_stream weft_sound_stream_inputs(weft_graph *g, const weft_run *run,
                                           const weft_run_models *models,
                                           const weft_model_size *size);
/* Adds the inputs, the noise and the level. `video`: level of the video, (B). */
weft_sound_stream weft_sound_stream_noised(weft_graph *g, const weft_run *run,
                                           const weft_run_models *models,
                                           const weft_model_size *size, const weft_noised *video);
/* Sets the denoiser's ports of the sound: its noisy latents, and the timesteps (B) of both
 * streams. */
void weft_sound_stream_give(weft_graph *g, const weft_run_models *models,
                            const weft_sound_stream *stream, weft_value noisy, weft_value time,
                            weft_value video_time, weft_ports *ports);
/* (B,S,C) of samples with sound; zeros for the others. */
weft_value weft_sound_stream_masked(weft_graph *g, const weft_sound_stream *stream, weft_value x);
/* Returns video_loss + sound.loss_weight sound_loss, with the outputs "video_loss", "sound_loss"
 * and "with_sound". */
weft_value weft_sound_stream_total(weft_graph *g, const weft_run *run,
                                   const weft_sound_stream *stream, weft_value video_loss,
                                   weft_value sound_loss);
/* Adds the inputs, and sets the denoiser's ports of the sound. `video`: level of the video, (B). */
weft_sound_stream weft_sound_stream_build(weft_graph *g, const weft_run *run,
                                          const weft_run_models *models,
                                          const weft_model_size *size, const weft_noised *video,
                                          weft_ports *ports);
/* Adds the loss of the sound to the loss of the video. `ports`: of the called denoiser. Without
 * sound returns `video_loss`. */
weft_value weft_sound_stream_loss(weft_graph *g, const weft_run *run,
                                  const weft_sound_stream *stream, const weft_ports *ports,
                                  weft_value video_loss);

/* Key of the sound's noise for a sample's key. */
int64_t weft_sound_stream_key(int64_t key);

#endif

/* Latent cache: the latents of a data set, encoded once, as WebDataset shards for the loader.
 *
 *     <latents>/<key>/train-0000-000000.tar   of rank 0, with its index: latents, captions
 *                     train-0001-000000.tar   of rank 1, ...
 *                     empty-caption.npy       text conditioning of the empty caption, if any
 *                     data-report.json        samples that were encoded or not, with reasons
 *                     complete                number of samples
 *                     checked-<hash>          contents of a set of faces or masks that were decoded
 *                     lock                    locked by the run that encodes
 *
 * Folders of earlier versions have no_text.npy and account.json instead.
 *
 * The folder may be in a bucket, without `lock`: shards are written and read there.
 *
 * <key> is a hash of all inputs of the latents: the encoders' files, the denoiser's use of their
 * outputs, the shards' contents, split, frame rate and clip sizes. Any runs can therefore share the
 * folder (data.latents). The next run encodes all samples that are not in an intact shard, for
 * example after a kill or a file loss. */
#ifndef WEFT_TRAIN_LATENTS_LATENT_CACHE_H
#define WEFT_TRAIN_LATENTS_LATENT_CACHE_H

#include "train/step/paired_latents.h"
#include "train/step/train_step.h"

/* f32: text conditioning of the caption, if all text encoders are frozen. (L,D) for a single
 * embedding, otherwise packed (prompt/text_conditioning.h). */
#define WEFT_TEXT_PART "text.npy"
/* f32 (N): packed text conditioning, followed by the sound (weft_run_sound_floats), in its place if
 * the run has sound. Samples without sound also have an empty WEFT_NO_SOUND_PART. */
#define WEFT_TEXT_SOUND_PART "text-sound.npy"

/* Collective. Ensures that the cache has the latents of every sample for the sizes of this training
 * stage, and embeddings if all text encoders are frozen. `folder` receives the cache's folder. Each
 * rank encodes and writes its share. A shard that was truncated or changed is reported, and its
 * samples are encoded again. WEFT_E_CANCELLED on all ranks if any rank was interrupted; encoded
 * samples are kept. */
weft_status weft_latents_ensure(const weft_run *run, const weft_run_models *models,
                                const weft_train_stage *train_stage, const weft_exec_config *exec,
                                char folder[512]);
/* Reads the text conditioning of the empty caption from the cache folder: f32 (count), owned by the
 * caller. */
weft_status weft_latents_empty_caption(const char *folder, int64_t count, float **embeddings);

/* Builds the graph of text encoder r for `batch` captions, with weights in the type of their files.
 * NULL: out of memory. */
weft_graph *weft_text_graph(const weft_run *run, const weft_text_conditioning *text, int r,
                            int64_t batch);
/* Loads an encoder's weights from its files. `g` is the encoder's graph, whose parameters must be
 * in the store. NaN or infinity in a tensor of an autoencoder is an error, also in its decoder. */
weft_status weft_encoder_load(weft_store *store, const char *scope, const weft_family *family,
                              const weft_graph *g, const char *path);

/* Measures the mean and standard deviation of each latent channel over up to `samples` samples of
 * the training set. WEFT_E_CANCELLED if interrupted. */
weft_status weft_latents_measure(const weft_run *run, const weft_model *autoencoder,
                                 const weft_train_stage *train_stage, const weft_exec_config *exec,
                                 weft_store *store, int64_t samples, double mean[WEFT_MAX_CHANNELS],
                                 double deviation[WEFT_MAX_CHANNELS]);

/* Bytes that encoding for a training stage reserves on this rank in addition to the store:
 * programs, prefetched clips, and the weights of frozen encoders. */
weft_status weft_latents_bytes(const weft_run *run, const weft_run_models *models,
                               const weft_train_stage *train_stage, const weft_exec_config *exec,
                               int64_t *bytes);

#endif

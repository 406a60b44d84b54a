#ifndef WEFT_DATA_LOADER_BUCKETS_H
#define WEFT_DATA_LOADER_BUCKETS_H

#include "data/loader.h"

/* Returns the frames of a clip at `fps`; 0: at the rate of the clip. */
int64_t weft_loader_frames(const weft_sample *sample, double fps);
/* Assigns every sample to a bucket or an outcome, fills the queues and computes the fingerprint of
 * the order. Without a usable sample returns an error that lists the outcomes. */
weft_status weft_loader_deal(weft_loader *loader);
/* The shards' place for messages; of a list of sources the name of its key. */
const char *weft_loader_location(const weft_loader *loader);
/* Sets the weights of the queues' turns: their numbers of samples, or the shares of the buckets.
 * With a share of images, scales the weights of image and clip queues so that the share holds.
 * `image` as in the config. */
weft_status weft_loader_compute_shares(weft_loader *loader, const bool *image);

#endif

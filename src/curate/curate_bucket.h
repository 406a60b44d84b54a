/* A bucket as the output of a curation: s3://BUCKET/PREFIX in place of a folder.
 *
 * The run works in a folder of this machine (shared_copy.h) with all records, metas and lists of
 * the bucket, but no clips. A record is sent when its video is analysed. A worker that has written
 * the clips of a video sends clips and metas, and removes the clips of this machine. The lists are
 * sent last. All functions do nothing for a folder. Private to curate/. */
#ifndef WEFT_CURATE_CURATE_BUCKET_H
#define WEFT_CURATE_CURATE_BUCKET_H

#include "curate/curate_plan.h"

/* Sets plan->out and plan->bucket for plan->location, and receives the files of the bucket. */
weft_status weft_curate_bucket_open(weft_curate_plan *plan);
void weft_curate_bucket_close(weft_curate_plan *plan);
/* Receives what other machines have sent. */
weft_status weft_curate_bucket_pull(const weft_curate_plan *plan);
/* Receives the records of one video that this machine has not. */
weft_status weft_curate_bucket_pull_video(const weft_curate_plan *plan,
                                          const weft_curate_source *source);
/* Sends a file of plan->out, if it is new or changed. Also from workers. */
weft_status weft_curate_bucket_send(const weft_curate_plan *plan, const char *path);
/* Sends the clips of a video that exist here, then their metas, and removes the clips here. */
weft_status weft_curate_bucket_send_clips(const weft_curate_plan *plan,
                                          const weft_curate_source *source);
/* Receives a clip that only the bucket has; weft_curate_bucket_drop_clip removes it here. */
weft_status weft_curate_bucket_fetch_clip(const weft_curate_plan *plan,
                                          const weft_curate_clip *clip);
void weft_curate_bucket_drop_clip(const weft_curate_plan *plan, const weft_curate_clip *clip);
/* Removes a file of plan->out if it exists; of a bucket when the lists are published. */
weft_status weft_curate_bucket_remove(weft_curate_plan *plan, const char *path);
/* Appends the names of a folder of plan->out, sorted, each once: of this machine and the bucket. */
weft_status weft_curate_bucket_list(const weft_curate_plan *plan, const char *folder,
                                    weft_names *names);
/* Sends clips and metas that are not sent yet, then the lists, the summary last, and then removes
 * the removed files, metas first. */
weft_status weft_curate_bucket_publish(weft_curate_plan *plan);

#endif

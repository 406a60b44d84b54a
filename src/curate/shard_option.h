/* The value of --shard. */
#ifndef WEFT_CURATE_SHARD_OPTION_H
#define WEFT_CURATE_SHARD_OPTION_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_MOST_SHARDS = 1000000 };

/* Reads "I/N" with 0 <= I < N, "auto/N" or "auto". I of auto is the index of a Slurm array task or
 * of a pod of an indexed Kubernetes job; N of "auto" is the length of the array, without gaps.
 * WEFT_E_ARG: the message names the fault. */
weft_status weft_shard_option_parse(const char *text, int64_t *shard, int64_t *shards);

#endif

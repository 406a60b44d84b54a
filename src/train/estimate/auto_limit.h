/* `memory.limit: auto`: the free memory of the GPUs. */
#ifndef WEFT_TRAIN_ESTIMATE_AUTO_LIMIT_H
#define WEFT_TRAIN_ESTIMATE_AUTO_LIMIT_H

#include "comm/comm.h"
#include "train/config/train_config.h"

#define WEFT_AUTO_LIMIT_FORMAT "weft.memory-limit/1"

/* The choice of a run, equal on all ranks. <out>/memory-limit.json stores it, so that a resumed run
 * recomputes the same activations whatever memory is free:
 *
 *   {"format": "weft.memory-limit/1", "weft": VERSION, "id": hash of the file's content,
 *    "device_bytes": 82678120448, "limit": 83214991360} */
typedef struct weft_auto_limit {
    int64_t device; /* bytes that a rank may use of its GPU, the least of all ranks; 0: no choice */
    int64_t limit;  /* memory.limit: `device` and the memory of the process; 0: no choice */
    bool changed;   /* differs from the file */
} weft_auto_limit;

/* Collective. Reads the choice of the run folder, or chooses `device`: the free bytes of the GPU,
 * less the reserve of weft_device_usable(), divided between the ranks that share the GPU. Call
 * before the run uses memory of the GPU. Fails for a backend without memory of its own. */
weft_status weft_auto_limit_begin(weft_auto_limit *choice, const weft_run *run, const char *path,
                                  weft_comm *comm);
/* Collective. Chooses `limit`. `process`: bytes of this rank's process (process_memory.h), which
 * a limit contains, because it is compared with all memory of a rank. */
weft_status weft_auto_limit_end(weft_auto_limit *choice, int64_t process, weft_comm *comm);
/* Writes the choice to the run folder `out`, atomically. */
weft_status weft_auto_limit_save(const char *out, const weft_auto_limit *choice);

#endif

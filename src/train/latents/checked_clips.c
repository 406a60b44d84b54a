#include "train/latents/checked_clips.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "comm/comm_world.h"
#include "train/latents/latent_cache_folder.h"
#include "train/step/pair_index.h"
#include "train/step/paired_clips.h"

#include <stdio.h>

enum { NAME_BYTES = 32, CHECKS = 1 }; /* CHECKS: higher if the checks are changed */

/* Name of the file that exists if the clips have been checked. The folder is one of the frames. */
static void name_of(const weft_run *run, const weft_run_pair *pair, const weft_paired_clips *clips,
                    char name[NAME_BYTES])
{
    const double fps = run->data.fps;
    uint64_t hash = weft_seed_mix(weft_paired_clips_fingerprint(clips), CHECKS);
    hash = weft_seed_mix(hash, pair->kind);
    hash = weft_seed_mix(hash, XXH3_64bits(&fps, sizeof fps));
    snprintf(name, NAME_BYTES, "checked-%016" PRIx64, hash);
}

/* Sets *checked as rank 0 finds the file. */
static weft_status find(const weft_exec_config *exec, const char *folder, const char *name,
                        bool *checked)
{
    *checked = false;
    if (weft_comm_rank(exec->comm) == 0)
        WEFT_TRY(weft_latent_cache_has(folder, name, checked));
    return weft_comm_broadcast(exec->comm, checked, sizeof *checked, 0);
}

/* Rank 0: writes the file. A shared cache may be read-only. */
static void remember(const weft_exec_config *exec, const char *folder, const char *name)
{
    weft_buf empty = {0};
    if (weft_comm_rank(exec->comm) != 0)
        return;
    weft_buf_printf(&empty, "decoded\n");
    if (weft_latent_cache_put(folder, name, &empty) != WEFT_OK)
        weft_warn_error(WEFT_MSG_SAVE_FAILED, "the next start decodes these clips again");
}

static weft_status check(const weft_run *run, const weft_run_models *models,
                         const weft_exec_config *exec, const char *folder,
                         const weft_run_pair *pair)
{
    char name[NAME_BYTES];
    bool checked;
    weft_paired_clips *clips = NULL;
    weft_dataset *first = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_paired_clips_open(run, pair, &clips));
    name_of(run, pair, clips, name);
    WEFT_GO(find(exec, folder, name, &checked));
    if (!checked) {
        WEFT_GO(weft_dataset_open(folder, NULL, false, &first));
        WEFT_GO(weft_paired_clips_check_all(clips, first, &models->grid, exec->comm));
        remember(exec, folder, name);
    }
out:
    weft_dataset_close(first);
    weft_paired_clips_close(clips);
    return status;
}

weft_status weft_checked_clips_ensure(const weft_run *run, const weft_run_models *models,
                                      const weft_exec_config *exec, const char *folder)
{
    weft_run_pair pair[WEFT_RUN_PAIRS];
    const int pairs = weft_run_pairs_of(run, models, pair);
    for (int i = 0; i < pairs; i++)
        if (!weft_run_pair_cached(&pair[i]) || weft_pair_index_framed(&pair[i]))
            WEFT_TRY(check(run, models, exec, folder, &pair[i]));
    return WEFT_OK;
}

#include "train/estimate/auto_limit.h"

#include "base/memory.h"
#include "comm/comm_world.h"
#include "kernel/device.h"
#include "kernel/device_links.h"
#include "kernel/registry/backend.h"
#include "train/checkpoint/run_file.h"
#include "train/estimate/process_memory.h"

#include <string.h>

static const weft_run_file choice_file = {
    .name = "memory-limit.json",
    .format = WEFT_AUTO_LIMIT_FORMAT,
    .remedy = "Remove the file, and the run chooses its limit again"};

static weft_status read_choice(const json_t *json, const char *path, void *to)
{
    weft_auto_limit *choice = to;
    WEFT_TRY(weft_json_get_i64(json, "device_bytes", path, &choice->device));
    WEFT_TRY(weft_json_get_i64(json, "limit", path, &choice->limit));
    if (choice->device > 0 && choice->limit >= choice->device)
        return WEFT_OK;
    return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "limit"),
                      "the limit is not a number of at least device_bytes");
}

weft_status weft_auto_limit_save(const char *out, const weft_auto_limit *choice)
{
    json_t *json = json_pack("{s:I, s:I}", "device_bytes", (json_int_t)choice->device, "limit",
                             (json_int_t)choice->limit);
    const weft_status_code status =
        json ? weft_run_file_save(out, &choice_file, json) : weft_no_memory("memory.limit: auto");
    json_decref(json);
    return status;
}

/* A rank's GPU and the bytes that all its ranks together may use. */
typedef struct rank_device {
    char device[16]; /* identity; zeros: unknown */
    int64_t usable;
} rank_device;

static bool share_device(const rank_device *a, const rank_device *b)
{
    static const char unknown[sizeof a->device];
    return memcmp(a->device, unknown, sizeof unknown) != 0 &&
           memcmp(a->device, b->device, sizeof unknown) == 0;
}

/* Sets *least to the bytes of the rank that may use the fewest. */
static weft_status agree(const weft_device *device, weft_comm *comm, int64_t *least)
{
    const int ranks = weft_comm_ranks(comm);
    rank_device own = {.usable = weft_device_usable(device)}, *all;
    weft_link_endpoint endpoint = {0};
    WEFT_TRY(WEFT_NEW(all, ranks, "memory.limit: auto"));
    if (device->links && ranks > 1)
        device->links->describe(device, &endpoint);
    memcpy(own.device, endpoint.device, sizeof own.device);
    const weft_status_code status = weft_comm_all_gather(comm, &own, sizeof own, all);
    *least = 0;
    for (int i = 0; i < ranks && status == WEFT_OK; i++) {
        int sharers = 0;
        for (int j = 0; j < ranks; j++)
            sharers += i == j || share_device(&all[i], &all[j]);
        const int64_t bytes = all[i].usable / sharers;
        *least = i == 0 || bytes < *least ? bytes : *least;
    }
    weft_free(all);
    return status;
}

weft_status weft_auto_limit_begin(weft_auto_limit *choice, const weft_run *run, const char *path,
                                  weft_comm *comm)
{
    const weft_backend *backend = weft_backend_find(run->backend);
    *choice = (weft_auto_limit){0};
    if (!backend || !weft_device_is_apart(backend->device))
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = path, .key = "memory.limit", .value = "auto"),
                          "auto is the free memory of a GPU, and backend %s has no memory of its "
                          "own; give a number of bytes, as in memory: {limit: 6GiB}",
                          run->backend);
    if (weft_comm_rank(comm) == 0)
        WEFT_TRY(weft_run_file_load(run->out, &choice_file, read_choice, choice));
    WEFT_TRY(weft_comm_broadcast(comm, choice, sizeof *choice, 0));
    if (choice->device)
        return WEFT_OK;
    choice->changed = true;
    WEFT_TRY(agree(backend->device, comm, &choice->device));
    return choice->device > 0 ? WEFT_OK
                              : weft_error(WEFT_MSG_GPU_MEMORY, WEFT_AT(.key = "memory.limit"),
                                           "auto: a GPU has no free memory");
}

weft_status weft_auto_limit_end(weft_auto_limit *choice, int64_t process, weft_comm *comm)
{
    int64_t *all;
    if (choice->limit)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(all, weft_comm_ranks(comm), "memory.limit: auto"));
    const weft_status_code status = weft_comm_all_gather(comm, &process, sizeof process, all);
    for (int i = 0; i < weft_comm_ranks(comm); i++)
        process = all[i] < process ? all[i] : process;
    weft_free(all);
    choice->limit = choice->device + process + weft_process_unreported();
    return status;
}

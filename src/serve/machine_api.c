#include "serve/machine_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* A value of a file of /proc in bytes, from its line "NAME: N kB"; 0: unknown. */
static int64_t read_kib(const char *path, const char *name)
{
    char line[256];
    int64_t bytes = 0;
    FILE *file = fopen(path, "re");
    while (file && !bytes && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            bytes = 1024 * strtoll(line + strlen(name) + 1, NULL, 10);
    if (file)
        fclose(file);
    return bytes;
}

/* Memory of a process and, if it starts ranks, of its children. */
static int64_t resident_bytes(int64_t pid, bool starts_ranks)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/status", pid);
    int64_t bytes = read_kib(path, "VmRSS"), rank;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/task/%" PRId64 "/children", pid, pid);
    FILE *file = starts_ranks ? fopen(path, "re") : NULL;
    while (file && fscanf(file, "%" SCNd64, &rank) == 1)
        bytes += resident_bytes(rank, false);
    if (file)
        fclose(file);
    return bytes;
}

/* Weights and memory of all workers. */
typedef struct worker_sums {
    json_t *loaded;
    int64_t memory, bytes, loads, unloads;
} worker_sums;

static worker_sums sum_workers(const weft_server *s)
{
    worker_sums sums = {.loaded = json_array()};
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++) {
        json_t *loaded = weft_loaded_weights_json(&g->weights);
        json_array_extend(sums.loaded, loaded);
        json_decref(loaded);
        sums.memory += g->worker ? resident_bytes(g->worker, g->ranks > 1) : 0;
        sums.bytes += weft_loaded_weights_bytes(&g->weights);
        sums.loads += weft_loaded_weights_loads(&g->weights);
        sums.unloads += weft_loaded_weights_unloads(&g->weights);
    }
    return sums;
}

weft_serve_reply weft_machine_get(const weft_server *s)
{
    double load[3] = {0, 0, 0};
    struct statvfs disk;
    int64_t free_bytes = 0;
    (void)getloadavg(load, 3);
    if (statvfs(s->state, &disk) == 0)
        free_bytes = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
    const worker_sums w = sum_workers(s);
    return weft_serve_json(
        200, json_pack("{s:s, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:f}",
                       "version", WEFT_VERSION, "processors",
                       (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "load", load[0], "memory_bytes",
                       (json_int_t)read_kib("/proc/meminfo", "MemTotal"), "available_bytes",
                       (json_int_t)read_kib("/proc/meminfo", "MemAvailable"), "worker_bytes",
                       (json_int_t)w.memory, "disk_free_bytes", (json_int_t)free_bytes,
                       "workers_started", (json_int_t)s->workers, "workers_crashed",
                       (json_int_t)s->crashes, "loaded", w.loaded, "loaded_bytes",
                       (json_int_t)w.bytes, "loads", (json_int_t)w.loads, "unloads",
                       (json_int_t)w.unloads, "now", weft_server_time()));
}

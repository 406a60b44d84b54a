#include "train/checkpoint/failed_start.h"

#include "base/fs.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1200 };

static bool begins_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

static bool is_of_run(const char *name)
{
    return !strcmp(name, "metrics.jsonl") || begins_with(name, "events.out.tfevents.") ||
           !strcmp(name, "layout-choice.json") || !strcmp(name, "precision-choice.json") ||
           !strcmp(name, "activation-plan.json") ||
           (begins_with(name, "data-stage-") && ends_with(name, ".json")) ||
           weft_is_temporary(name);
}

static bool is_of_cascades(const char *name)
{
    return !strcmp(name, "plans.jsonl") || !strcmp(name, "iterations.jsonl") ||
           weft_is_temporary(name);
}

static bool is_of_latents(const char *name)
{
    return !strcmp(name, "lock") || !strcmp(name, "empty-caption.npy") ||
           !strcmp(name, "data-report.json") || weft_is_temporary(name);
}

/* Shards that were finished before the failure are read by the next start. */
static bool is_encoded(const char *name)
{
    return !strcmp(name, "complete") || ends_with(name, ".tar");
}

static bool has_name(const char *folder, bool (*wanted)(const char *name))
{
    DIR *dir = opendir(folder);
    bool found = false;
    for (const struct dirent *entry; dir && !found && (entry = readdir(dir));)
        found = wanted(entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

/* Removes the files of a folder whose names `own` accepts. */
static void remove_own(const char *folder, bool (*own)(const char *name))
{
    char path[PATH_BYTES];
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (own(entry->d_name) &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < PATH_BYTES)
            unlink(path);
    if (dir)
        closedir(dir);
}

static void remove_latents(const char *latents)
{
    char folder[PATH_BYTES];
    DIR *dir = opendir(latents);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' ||
            snprintf(folder, sizeof folder, "%s/%s", latents, entry->d_name) >= PATH_BYTES ||
            has_name(folder, is_encoded))
            continue;
        remove_own(folder, is_of_latents);
        rmdir(folder);
    }
    if (dir)
        closedir(dir);
    rmdir(latents);
}

void weft_failed_start_remove(const char *out)
{
    char path[PATH_BYTES];
    remove_own(out, is_of_run);
    if (snprintf(path, sizeof path, "%s/checkpoints", out) < PATH_BYTES)
        rmdir(path);
    if (snprintf(path, sizeof path, "%s/cascades", out) < PATH_BYTES) {
        remove_own(path, is_of_cascades);
        rmdir(path);
    }
    if (snprintf(path, sizeof path, "%s/latents", out) < PATH_BYTES)
        remove_latents(path);
}

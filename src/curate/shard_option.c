#include "curate/shard_option.h"

#include "base/config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static weft_status refuse(const char *text, const char *why)
{
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--shard", .value = text),
                      "\"%s\" is not a shard: %s", text, why);
}

/* A number of the environment; false: not set, or not a number. */
static bool number_of(const char *name, int64_t *to)
{
    const char *value = getenv(name);
    return value && weft_parse_i64(value, to);
}

static weft_status check(const char *text, int64_t shard, int64_t shards)
{
    if (shards < 1 || shards > WEFT_MOST_SHARDS)
        return refuse(text, "N is from 1 to 1000000");
    if (shard < 0 || shard >= shards)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--shard", .value = text, WEFT_NUMBER(shard)),
                          "shard %" PRId64 " of %" PRId64
                          " does not exist; shards count from 0 to N - 1, as in --array=0-%" PRId64,
                          shard, shards, shards - 1);
    return WEFT_OK;
}

/* "auto": an array with gaps has other tasks than shards. */
static weft_status of_array(const char *text, int64_t *shard, int64_t *shards)
{
    int64_t id, least, most, count;
    if (!number_of("SLURM_ARRAY_TASK_ID", &id) || !number_of("SLURM_ARRAY_TASK_MIN", &least) ||
        !number_of("SLURM_ARRAY_TASK_MAX", &most) || !number_of("SLURM_ARRAY_TASK_COUNT", &count))
        return refuse(text, "auto needs the variables of a Slurm array (SLURM_ARRAY_TASK_ID, "
                            "_MIN, _MAX and _COUNT); elsewhere write auto/N or I/N");
    if (most - least + 1 != count)
        return refuse(text, "the Slurm array has gaps, so N is not its number of tasks; write "
                            "auto/N with the N of the first run");
    *shard = id - least;
    *shards = count;
    return check(text, *shard, *shards);
}

weft_status weft_shard_option_parse(const char *text, int64_t *shard, int64_t *shards)
{
    const char *slash = strchr(text, '/');
    char first[24];
    if (!strcmp(text, "auto"))
        return of_array(text, shard, shards);
    if (!slash || slash - text >= (ptrdiff_t)sizeof first || !weft_parse_i64(slash + 1, shards))
        return refuse(text, "write I/N, auto/N or auto");
    memcpy(first, text, (size_t)(slash - text));
    first[slash - text] = 0;
    if (!strcmp(first, "auto")) {
        if (!number_of("SLURM_ARRAY_TASK_ID", shard) && !number_of("JOB_COMPLETION_INDEX", shard))
            return refuse(text, "auto needs SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX");
    } else if (!weft_parse_i64(first, shard)) {
        return refuse(text, "write I/N, auto/N or auto");
    }
    return check(text, *shard, *shards);
}

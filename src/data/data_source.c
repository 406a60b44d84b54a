#include "data/data_source.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const weft_key source_keys[] = {
    {"path", WEFT_KEY_STRING, offsetof(weft_data_source, path), NULL, "",
     "data shards of the source, as data.path with a single value"},
    {"name", WEFT_KEY_STRING, offsetof(weft_data_source, name), "", "",
     "name of the source in reports, and the first part of its samples' keys; empty: the last "
     "folder of the path"},
    {"split", WEFT_KEY_STRING, offsetof(weft_data_source, split), "", "",
     "start of the names of the data shards to read; empty: data.split, *: all shards"},
    {"weight", WEFT_KEY_F64, offsetof(weft_data_source, weight), "1", "",
     "times that each sample of the source occurs in an epoch; 0.5: every second epoch, 2: twice, "
     "0: never",
     .min = 0, .max = 10000},
    {"limit", WEFT_KEY_I64, offsetof(weft_data_source, limit), "0", "samples",
     "maximum number of samples of the source, chosen by a hash of their keys. 0 (default): no "
     "limit",
     .min = 0, .max = 1e12},
    {"prompt_prefix", WEFT_KEY_STRING, offsetof(weft_data_source, prompt_prefix), "", "",
     "text that is put before each caption of the source, such as \"anime style, \""},
};
const weft_section weft_data_source_section = {
    "sources",
    "sources that are blended; a list as the value of data.path sets them",
    sizeof(weft_data_source),
    source_keys,
    WEFT_COUNT(source_keys),
    .single = "path"};
const char *const weft_blend_names[] = {"exact", "sampled", NULL};

const char *weft_data_source_name(const weft_data_source *source, char name[WEFT_SOURCE_NAME_BYTES])
{
    const char *from = source->name[0] ? source->name : source->path;
    int64_t end = (int64_t)strlen(from), first;
    while (!source->name[0] && end > 0 && from[end - 1] == '/')
        end--;
    first = source->name[0] ? 0 : end;
    while (first > 0 && from[first - 1] != '/')
        first--;
    snprintf(name, WEFT_SOURCE_NAME_BYTES, "%.*s", (int)(end - first), from + first);
    return name;
}

static bool is_valid(const char *name)
{
    const char *c = name;
    while (isalnum((unsigned char)*c) || (*c && strchr("_-.", *c)))
        c++;
    return !*c && c > name && name[0] != '.';
}

static weft_status check_name(const weft_section_list *sources, int64_t index, const char *where,
                              const char *key)
{
    const weft_data_source *s = (const weft_data_source *)sources->item + index;
    char name[WEFT_SOURCE_NAME_BYTES], other[WEFT_SOURCE_NAME_BYTES];
    weft_data_source_name(s, name);
    if (!is_valid(name) || strlen(s->name) >= sizeof name)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = where,
                    .key = weft_message_key((char[64]){0}, "%s.%" PRId64 ".name", key, index),
                    .value = s->name[0] ? s->name : name),
            "the name of a source has 1 to %d letters, digits, or the characters _ - and . and "
            "does not begin with a dot. Give the source of %s such a name.",
            WEFT_SOURCE_NAME_BYTES - 1, s->path);
    for (int64_t i = 0; i < index; i++)
        if (!strcmp(weft_data_source_name(s - index + i, other), name))
            return weft_error(
                WEFT_MSG_CONFIG_CONFLICT,
                WEFT_AT(.file = where,
                        .key = weft_message_key((char[64]){0}, "%s.%" PRId64 ".name", key, index),
                        .value = name),
                "source %" PRId64 " has the same name. Give each source a name of its own.", i);
    return WEFT_OK;
}

weft_status weft_data_sources_check(const weft_section_list *sources, const char *where,
                                    const char *key)
{
    double sum = 0;
    if (sources->count > WEFT_MAX_SOURCES)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = where, .key = key, WEFT_NUMBER(sources->count)),
            "a data set has at most %d sources. Merge some sources.", WEFT_MAX_SOURCES);
    for (int64_t i = 0; i < sources->count; i++) {
        WEFT_TRY(check_name(sources, i, where, key));
        sum += ((const weft_data_source *)sources->item)[i].weight;
    }
    if (sources->count && sum <= 0)
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = where, .key = key),
                          "the weights of all sources are 0. Give at least one a weight above 0.");
    return WEFT_OK;
}

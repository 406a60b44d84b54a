#include "serve/job_layout.h"

#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Follows the keys of a layout whose weights do not fit. */
#define STREAMS ", weights stream"

json_t *weft_job_layout_take(json_t *request)
{
    static const char *const keys[] = {"layout", "ranks", "degrees"};
    json_t *taken = json_object();
    for (int i = 0; taken && i < WEFT_COUNT(keys); i++) {
        json_t *value = json_object_get(request, keys[i]);
        if (value)
            json_object_set(taken, keys[i], value);
        json_object_del(request, keys[i]);
    }
    return taken;
}

const json_t *weft_job_layout_degree(const json_t *request, int64_t ranks)
{
    const json_t *list = json_object_get(request, "degrees");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_object_get(json_array_get(list, i), "ranks")) == ranks)
            return json_array_get(list, i);
    return NULL;
}

int64_t weft_job_layout_ranks(const char *layout)
{
    static const char *const degrees[] = {"cfg=", "dp=", "fsdp=", "ep=", "tp=", "cp=", "pp="};
    char text[WEFT_JOB_LAYOUT], *keys[WEFT_JOB_LAYOUT_KEYS];
    const int count = weft_job_layout_split(layout, text, keys);
    int64_t ranks = 1;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < WEFT_COUNT(degrees); k++)
            if (!strncmp(keys[i], degrees[k], strlen(degrees[k])))
                ranks *= strtoll(keys[i] + strlen(degrees[k]), NULL, 10);
    return ranks;
}

bool weft_job_layout_streams(const char *layout)
{
    return strstr(layout, STREAMS) != NULL;
}

int weft_job_layout_split(const char *layout, char text[WEFT_JOB_LAYOUT],
                          char *keys[WEFT_JOB_LAYOUT_KEYS])
{
    int count = 0, depth = 0;
    bool within = false;
    snprintf(text, WEFT_JOB_LAYOUT, "%s", layout);
    char *end = strstr(text, STREAMS);
    if (end)
        *end = '\0';
    for (char *at = text; *at; at++) {
        depth += (*at == '{') - (*at == '}');
        if (*at == ' ' && !depth) {
            *at = '\0';
            within = false;
        } else if (!within && count < WEFT_JOB_LAYOUT_KEYS) {
            keys[count++] = at;
            within = true;
        }
    }
    return count && strchr(keys[0], '=') ? count : 0; /* "1 rank" has no keys */
}

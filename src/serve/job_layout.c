#include "serve/job_layout.h"

#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Follows the keys of a layout whose weights do not fit. */
#define STREAMS ", weights stream"

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

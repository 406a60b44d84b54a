/* Rules of caches by name, and those of families. */
#include "generate/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"block", "teacache", "every", "attention"};
enum { BLOCK, TEACACHE, EVERY, ATTENTION };

/* The first row for this config and frames of so many pixels. */
static const weft_cache_row *find_row(const weft_model *m, int64_t pixels, bool teacache)
{
    const weft_family *f = m->family;
    for (int i = 0; i < f->caches; i++) {
        const weft_cache_row *row = &f->cache[i];
        if ((!row->fits || row->fits(m->config)) && pixels >= row->pixels &&
            (!teacache || row->signal != WEFT_SIGNAL_BLOCK))
            return row;
    }
    return NULL;
}

/* Of all families, for messages. */
static void list_families(bool teacache, weft_buf *out)
{
    for (int i = 0; weft_families[i]; i++) {
        bool has = false;
        for (int k = 0; k < weft_families[i]->caches; k++)
            has |= !teacache || weft_families[i]->cache[k].signal != WEFT_SIGNAL_BLOCK;
        if (has)
            weft_buf_printf(out, "%s%s", out->len ? ", " : "", weft_families[i]->class_name);
    }
}

static weft_status no_row(const char *text, const weft_model *m, bool teacache)
{
    weft_buf known = {0};
    list_families(teacache, &known);
    const weft_status_code status = weft_fail(
        WEFT_E_UNSUPPORTED,
        teacache ? "--cache %s: no coefficients are known for %s of this size (published sizes of "
                   "%s have some); take block:0.08, or another threshold, and judge it by "
                   "weft eval cache"
                 : "--cache %s: no thresholds are known for %s (there are some for %s); give a "
                   "rule, like block:0.08 or every:2, and judge it by weft eval cache, or leave "
                   "it off",
        text, weft_model_class(m), known.data ? known.data : "none");
    weft_buf_free(&known);
    return status;
}

static void take_row(const weft_cache_row *row, double threshold, weft_cache_rule *rule)
{
    rule->signal = row->signal;
    rule->adds = row->signal != WEFT_SIGNAL_BLOCK;
    rule->threshold = threshold;
    rule->warm = row->warm;
    rule->last = 1;
    memcpy(rule->coefficient, row->coefficient, sizeof rule->coefficient);
}

static weft_status refuse(const char *text)
{
    return weft_fail(WEFT_E_ARG,
                     "--cache %s: off, conservative, fast, or a rule: block:T and teacache:T "
                     "(threshold, 0 to 10), every:N and attention:N (steps, 1 to 1000), and behind "
                     "it ,warm=SHARE ,last=N ,run=N ,front=N",
                     text);
}

/* ",warm=0.2,run=3" */
static weft_status read_more(const char *text, const char *at, weft_cache_rule *rule)
{
    while (*at) {
        char key[16];
        double value;
        int used = 0;
        if (sscanf(at, ",%15[a-z]=%lf%n", key, &value, &used) != 2 || !(value >= 0) ||
            value > 1000 || (at[used] && at[used] != ','))
            return refuse(text);
        if (!strcmp(key, "warm") && value <= 1)
            rule->warm = value;
        else if (!strcmp(key, "last"))
            rule->last = (int64_t)value;
        else if (!strcmp(key, "run"))
            rule->run = (int64_t)value;
        else if (!strcmp(key, "front"))
            rule->front = (int)value;
        else
            return refuse(text);
        at += used;
    }
    return WEFT_OK;
}

static weft_status read_rule(const char *text, const weft_model *m, int64_t pixels,
                             weft_cache_rule *rule)
{
    int kind = 0;
    const char *colon = strchr(text, ':');
    while (kind < (int)(sizeof names / sizeof *names) && colon &&
           (strncmp(text, names[kind], (size_t)(colon - text)) || names[kind][colon - text]))
        kind++;
    if (!colon || kind == (int)(sizeof names / sizeof *names))
        return refuse(text);
    char *end;
    const double value = strtod(colon + 1, &end);
    const bool steps = kind == EVERY || kind == ATTENTION;
    if (end == colon + 1 || !(value >= (steps ? 1 : 0)) || value > (steps ? 1000 : 10) ||
        (steps && value != (double)(int64_t)value))
        return refuse(text);
    /* Aquarius: nothing is taken again in the first ten of its fifty steps */
    *rule = (weft_cache_rule){.last = 1};
    if (kind == TEACACHE) {
        const weft_cache_row *row = find_row(m, pixels, true);
        if (!row)
            return no_row(text, m, true);
        take_row(row, value, rule);
    } else if (kind == BLOCK) {
        rule->signal = WEFT_SIGNAL_BLOCK;
        rule->threshold = value;
    } else {
        rule->what = kind == ATTENTION ? WEFT_REUSE_ATTENTION : WEFT_REUSE_BLOCKS;
        rule->every = (int64_t)value;
        rule->front = kind == EVERY;
        rule->warm = 0.2;
    }
    return read_more(text, end, rule);
}

weft_status weft_cache_choose(const char *text, const weft_model *denoiser, int64_t pixels,
                              weft_cache_rule *rule, bool *on)
{
    *on = text && *text && strcmp(text, "off");
    if (!*on)
        return WEFT_OK;
    const bool fast = !strcmp(text, "fast");
    if (!fast && strcmp(text, "conservative"))
        return read_rule(text, denoiser, pixels, rule);
    const weft_cache_row *row = find_row(denoiser, pixels, false);
    if (!row)
        return no_row(text, denoiser, false);
    *rule = (weft_cache_rule){0};
    take_row(row, fast ? row->fast : row->conservative, rule);
    return WEFT_OK;
}

void weft_cache_name(const weft_cache_rule *r, weft_buf *out)
{
    if (r->signal == WEFT_SIGNAL_NONE)
        weft_buf_printf(out, "%s:%lld", r->what == WEFT_REUSE_ATTENTION ? "attention" : "every",
                        (long long)r->every);
    else
        weft_buf_printf(out, "%s:%g", r->adds ? "teacache" : "block", r->threshold);
    weft_buf_printf(out, ",warm=%g,last=%lld", r->warm, (long long)r->last);
    if (r->run)
        weft_buf_printf(out, ",run=%lld", (long long)r->run);
    if (r->front)
        weft_buf_printf(out, ",front=%d", r->front);
}

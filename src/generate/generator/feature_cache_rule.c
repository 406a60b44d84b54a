/* Feature cache rules by name, and the rules of families. */
#include "generate/generator/feature_cache_rule.h"

#include "generate/generator/feature_cache.h"
#include "model/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"block", "teacache", "every", "attention"};
enum { BLOCK, TEACACHE, EVERY, ATTENTION };

/* The first row for this model config and `pixels` per frame. */
static const weft_feature_cache_row *find_row(const weft_model *m, int64_t pixels, bool teacache)
{
    const weft_family *f = m->family;
    for (int i = 0; i < f->caches; i++) {
        const weft_feature_cache_row *row = &f->cache[i];
        if ((!row->fits || row->fits(m->config)) && pixels >= row->pixels &&
            (!teacache || row->signal != WEFT_SIGNAL_BLOCK))
            return row;
    }
    return NULL;
}

/* Lists all families with rules, for messages. */
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
    const weft_status_code status = weft_error(
        WEFT_MSG_CACHE_UNSUPPORTED, WEFT_AT(.key = "--feature-cache", .value = text),
        teacache ? "no coefficients are known for a %s of this size; published sizes of %s have "
                   "them. Use block:0.08 or another threshold; `weft eval savings` checks it."
                 : "no thresholds are known for %s, only for %s. Use a rule such as block:0.08 or "
                   "every:2 and check it with `weft eval savings`, or omit --feature-cache.",
        weft_model_class(m), known.data ? known.data : "none");
    weft_buf_free(&known);
    return status;
}

static void take_row(const weft_feature_cache_row *row, double threshold,
                     weft_feature_cache_rule *rule)
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
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--feature-cache", .value = text),
                      "%s is not off, conservative, fast or a rule. Rules are block:T and "
                      "teacache:T (threshold, 0 to 10), every:N and attention:N (steps, 1 to "
                      "1000), followed by ,warm=SHARE ,last=N ,run=N ,front=N.",
                      text);
}

/* Parses options such as ",warm=0.2,run=3". */
static weft_status read_more(const char *text, const char *at, weft_feature_cache_rule *rule)
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
                             weft_feature_cache_rule *rule)
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
    /* Aquarius: the first ten of its fifty steps do not reuse */
    *rule = (weft_feature_cache_rule){.last = 1};
    if (kind == TEACACHE) {
        const weft_feature_cache_row *row = find_row(m, pixels, true);
        if (!row)
            return no_row(text, m, true);
        take_row(row, value, rule);
    } else if (kind == BLOCK) {
        rule->signal = WEFT_SIGNAL_BLOCK;
        rule->threshold = value;
    } else {
        rule->what = kind == ATTENTION ? WEFT_FEATURE_CACHE_ATTENTION : WEFT_FEATURE_CACHE_BLOCKS;
        rule->every = (int64_t)value;
        rule->front = kind == EVERY;
        rule->warm = 0.2;
    }
    return read_more(text, end, rule);
}

weft_status weft_feature_cache_choose(const char *text, const weft_model *denoiser, int64_t pixels,
                                      weft_feature_cache_rule *rule, bool *on)
{
    *on = text && *text && strcmp(text, "off");
    if (!*on)
        return WEFT_OK;
    const bool fast = !strcmp(text, "fast");
    if (!fast && strcmp(text, "conservative"))
        return read_rule(text, denoiser, pixels, rule);
    const weft_feature_cache_row *row = find_row(denoiser, pixels, false);
    if (!row)
        return no_row(text, denoiser, false);
    *rule = (weft_feature_cache_rule){0};
    take_row(row, fast ? row->fast : row->conservative, rule);
    return WEFT_OK;
}

void weft_feature_cache_name(const weft_feature_cache_rule *r, weft_buf *out)
{
    if (r->signal == WEFT_SIGNAL_NONE)
        weft_buf_printf(out, "%s:%" PRId64,
                        r->what == WEFT_FEATURE_CACHE_ATTENTION ? "attention" : "every", r->every);
    else
        weft_buf_printf(out, "%s:%g", r->adds ? "teacache" : "block", r->threshold);
    weft_buf_printf(out, ",warm=%g,last=%" PRId64, r->warm, r->last);
    if (r->run)
        weft_buf_printf(out, ",run=%" PRId64, r->run);
    if (r->front)
        weft_buf_printf(out, ",front=%d", r->front);
}

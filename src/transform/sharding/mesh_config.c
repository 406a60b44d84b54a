#include "pass/parallel.h"

#include "base/log.h"
#include "pass/parallel_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A section by itself: the struct is nothing else. */
typedef struct weft_parallel_alone {
    weft_parallel p;
} weft_parallel_alone;

static const char *const context_names[] = {"ulysses", "ring", "auto", "heads", NULL};
static const weft_key context_keys[] = {
    {"kind", WEFT_KEY_ENUM, offsetof(weft_context, kind), "ulysses", "",
     "ulysses: an all-to-all turns the split of tokens into one of heads around attention; ring: "
     "keys and values go round, and ranks may be more than heads; heads: as ulysses, where that "
     "turns frames into places (STDiT3, Latte); auto: the cheaper one by `weft "
     "plan layout`'s prices, with the profile OUT/profile.json where there is one",
     .choices = context_names},
    {"ulysses", WEFT_KEY_I64, offsetof(weft_context, ulysses), "0", "ranks",
     "of the cp ranks those that exchange heads, inside", .min = 0, .max = 1 << 20},
    {"ring", WEFT_KEY_I64, offsetof(weft_context, ring), "0", "ranks",
     "of the cp ranks those among which keys and values go round, outside", .min = 0,
     .max = 1 << 20},
};
const weft_section weft_context_section = {
    "context",
    "how cp splits attention: ulysses, ring, auto, or both as {ulysses: 2, ring: 2}",
    sizeof(weft_context),
    context_keys,
    WEFT_COUNT(context_keys),
    .single = "kind"};

static const char *const slices_names[] = {"on", "off", "auto", NULL};
#define SLICES(member, fallback_, least, help_)                                                    \
    {                                                                                              \
#member, WEFT_KEY_I64, offsetof(weft_slices, member), fallback_, "slices", help_,          \
            .min = least, .max = 1 << 20                                                           \
    }
static const weft_key slices_keys[] = {
    {"kind", WEFT_KEY_ENUM, offsetof(weft_slices, kind), "on", "",
     "on: as many as the other keys say, and no more than there are; off: layers are exchanged "
     "whole, sample by sample; auto: what costs least",
     .choices = slices_names},
    SLICES(time, "4", 1, "of spatial layers, along time, of all samples of a rank together"),
    SLICES(space, "4", 1, "of temporal layers, along space"),
    SLICES(lift_time, "1", 0,
           "of the first slices of a spatial layer parts are exchanged during the layer before it"),
    SLICES(lift_space, "3", 0, "the same of temporal layers"),
    {"heads", WEFT_KEY_I64, offsetof(weft_slices, heads), "1", "groups",
     "of attention whose ranks exchange tokens for heads (context: ulysses): in so many groups of "
     "heads, one exchanged while another is computed; auto: what costs least",
     .min = 0, .max = 1 << 20, .zero = "auto"},
    {"chunks", WEFT_KEY_I64, offsetof(weft_slices, chunks), "1", "chunks",
     "of products whose sums are exchanged (tp): in so many chunks of tokens, one exchanged while "
     "the next is computed; auto: what costs least",
     .min = 0, .max = 1 << 20, .zero = "auto"},
};
const weft_section weft_slices_section = {
    "slices",
    "what is exchanged in parts, behind kernels: on, off, auto, of models with spatial and "
    "temporal "
    "layers {time: 4, space: 4, lift_time: 1, lift_space: 3}, of others {heads: 4} with cp, "
    "{chunks: 4} with tp",
    sizeof(weft_slices),
    slices_keys,
    WEFT_COUNT(slices_keys),
    .single = "kind"};

static const weft_key parallel_keys[] = {WEFT_PARALLEL_KEYS(weft_parallel_alone, p)};
const weft_section weft_parallel_section = {
    "parallel",
    "how the run is laid over its ranks: degrees that make their number; heads, tokens, samples "
    "and widths need not divide by any",
    sizeof(weft_parallel), parallel_keys, WEFT_COUNT(parallel_keys)};

const weft_parallel weft_parallel_default = {.cfg = 1,
                                             .fsdp = 1,
                                             .ep = 1,
                                             .tp = 1,
                                             .pp = 1,
                                             .schedule = "1f1b",
                                             .plan = "",
                                             .text = "shared",
                                             .slices = WEFT_SLICES_DEFAULT};

/* ---- mesh ---------------------------------------------------------------------------------- */

enum { PLACES = 6 };
static const char *const place_name[PLACES] = {WEFT_STAGES_AXIS, "dp", "fsdp", "ep", "cp", "tp"};

typedef struct degrees {
    int64_t dp, fsdp, ep, ring, ulysses, tp, pp;
} degrees;

static weft_status context_of(const weft_parallel *p, const char *where, degrees *d)
{
    d->ulysses = p->context.ulysses ? p->context.ulysses : 1;
    d->ring = p->context.ring ? p->context.ring : 1;
    const int64_t both = d->ulysses * d->ring;
    if (p->context.kind == WEFT_CONTEXT_AUTO && both == 1 && p->cp > 1)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.context: auto is for the training of a run; here give "
                         "ulysses or ring",
                         where);
    if (!p->context.ulysses && !p->context.ring && p->cp)
        *(p->context.kind == WEFT_CONTEXT_RING ? &d->ring : &d->ulysses) = p->cp;
    else if (p->cp && p->cp != both)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel: cp is %lld, and context's ulysses %lld x ring %lld make "
                         "%lld: leave cp out, or change one",
                         where, (long long)p->cp, (long long)d->ulysses, (long long)d->ring,
                         (long long)both);
    return WEFT_OK;
}

static weft_status bad_ranks(const degrees *d, int64_t rest, int ranks, const char *where)
{
    char sizes[200], experts[40] = "", stages[40] = "";
    if (d->ep > 1)
        snprintf(experts, sizeof experts, " x ep %lld", (long long)d->ep);
    if (d->pp > 1)
        snprintf(stages, sizeof stages, " x pp %lld", (long long)d->pp);
    snprintf(sizes, sizeof sizes, "fsdp %lld x cp %lld x tp %lld%s%s", (long long)d->fsdp,
             (long long)(d->ring * d->ulysses), (long long)d->tp, experts, stages);
    if (d->dp)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel: dp %lld x %s make %lld ranks, but %d run (mpirun -n "
                         "%lld)",
                         where, (long long)d->dp, sizes, (long long)(d->dp * rest), ranks,
                         (long long)(d->dp * rest));
    const int64_t less = ranks / rest * rest;
    if (less == 0)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel: %s need %lld ranks, but %d run (mpirun -n %lld)", where,
                         sizes, (long long)rest, ranks, (long long)rest);
    return weft_fail(WEFT_E_CONFIG,
                     "%s: parallel: %s do not divide the %d ranks that run: start %lld or %lld of "
                     "them (mpirun -n)",
                     where, sizes, ranks, (long long)less, (long long)(less + rest));
}

/* Each is below 2^20, together they overflow. */
static weft_status check_product(const degrees *d, const char *where)
{
    enum { MOST = 1 << 20 };
    const int64_t degree[] = {d->fsdp, d->ep, d->ring, d->ulysses, d->tp, d->pp, d->dp ? d->dp : 1};
    int64_t product = 1;
    for (int i = 0; i < WEFT_COUNT(degree); i++) {
        product *= degree[i];
        if (product > MOST)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: parallel: the degrees make more than %d ranks, which is the most",
                             where, MOST);
    }
    return WEFT_OK;
}

static int place_of(const char *name)
{
    for (int i = 0; i < PLACES; i++)
        if (!strcmp(name, place_name[i]))
            return i;
    return -1;
}

static weft_status order_of(const weft_parallel *p, const char *where, int order[PLACES])
{
    int count = 0;
    bool taken[PLACES] = {false};
    for (int64_t i = 0; i < p->order.count; i++) {
        const int place = place_of(p->order.item[i]);
        if (place < 0 || taken[place])
            return weft_fail(
                WEFT_E_CONFIG, "%s: parallel.order: '%s' %s; the axes are pp, dp, fsdp, ep, cp, tp",
                where, p->order.item[i], place < 0 ? "is no axis" : "stands there twice");
        taken[place] = true;
        order[count++] = place;
    }
    for (int i = 0; i < PLACES; i++)
        if (!taken[i])
            order[count++] = i;
    return WEFT_OK;
}

static void add_axis(weft_mesh *mesh, const char *name, int64_t size)
{
    if (size > 1) {
        snprintf(mesh->axis[mesh->axis_count].name, sizeof mesh->axis[0].name, "%s", name);
        mesh->axis[mesh->axis_count++].size = (int)size;
    }
}

static bool text_is_apart(const weft_parallel *p)
{
    return p->text && p->text[0] && strcmp(p->text, weft_parallel_default.text) != 0;
}

weft_status weft_parallel_text(const weft_parallel *p, int ranks, const char *where, int *rank)
{
    *rank = -1;
    if (!text_is_apart(p))
        return WEFT_OK;
    char *end;
    const long given = strtol(p->text, &end, 10);
    if (end == p->text || *end || given < 0 || given >= ranks)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: text=%s: shared, or the one of the ranks 0 to %d that has the text "
                         "encoders",
                         where, p->text, ranks - 1);
    *rank = (int)given;
    return WEFT_OK;
}

weft_status weft_parallel_mesh(const weft_parallel *p, int ranks, const char *where,
                               weft_mesh *mesh)
{
    degrees d = {.dp = p->dp,
                 .fsdp = p->fsdp ? p->fsdp : 1,
                 .ep = p->ep ? p->ep : 1,
                 .tp = p->tp ? p->tp : 1,
                 .pp = p->pp ? p->pp : 1};
    int order[PLACES];
    if (p->plan && p->plan[0])
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.plan: a layout of `weft plan layout --for` is for the "
                         "training of its run; here give degrees",
                         where);
    if (p->cfg > 1)
        return weft_fail(
            WEFT_E_CONFIG,
            "%s: parallel.cfg: training has no guidance halves; weft generate and weft "
            "eval split them. Leave it out: dp takes its ranks",
            where);
    if (text_is_apart(p))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.text: %s: training has its text encoders on all ranks; weft "
                         "generate and weft eval put them on one. Leave it out",
                         where, p->text);
    if (weft_slices_open(&p->slices))
        return weft_fail(WEFT_E_CONFIG,
                         "%s: parallel.slices: auto is for the training of a run and for weft "
                         "generate, which tell what they take; here give that, on or off",
                         where);
    WEFT_TRY(context_of(p, where, &d));
    WEFT_TRY(order_of(p, where, order));
    WEFT_TRY(check_product(&d, where));
    const int64_t rest = d.fsdp * d.ep * d.ring * d.ulysses * d.tp * d.pp;
    if (ranks == 0)
        d.dp = d.dp ? d.dp : 1;
    else if (d.dp ? d.dp * rest != ranks : ranks % rest != 0)
        return bad_ranks(&d, rest, ranks, where);
    else
        d.dp = ranks / rest;
    *mesh = (weft_mesh){0};
    for (int i = 0; i < PLACES; i++)
        switch (order[i]) {
        case 0: add_axis(mesh, WEFT_STAGES_AXIS, d.pp); break;
        case 1: add_axis(mesh, "dp", d.dp); break;
        case 2: add_axis(mesh, "fsdp", d.fsdp); break;
        case 3: add_axis(mesh, "ep", d.ep); break;
        case 4:
            add_axis(mesh, "ring", d.ring);
            add_axis(mesh, p->context.kind == WEFT_CONTEXT_HEADS ? "heads" : "cp", d.ulysses);
            break;
        default: add_axis(mesh, p->sequence ? "sp" : "tp", d.tp); break;
        }
    return WEFT_OK;
}

weft_status weft_parallel_mesh_denoise(const weft_parallel *p, int ranks, int halves,
                                       const char *where, weft_mesh *mesh)
{
    weft_parallel own = *p;
    const int64_t cfg = p->cfg ? p->cfg : 1;
    if (p->pp > 1)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: pp=%lld: a denoising step would go through the stages one after the "
                         "other and gain nothing; fsdp=%lld keeps the weights in as many parts, tp "
                         "or cp split the work",
                         where, (long long)p->pp, (long long)p->pp);
    if (cfg > 1 && cfg != halves)
        return weft_fail(WEFT_E_CONFIG, "%s: cfg=%lld: this guidance has %d; %s", where,
                         (long long)cfg, halves,
                         halves > 1 ? "cfg=2 splits them" : "leave cfg out");
    own.cfg = 1;
    own.text = NULL;
    own.dp *= cfg;
    WEFT_TRY(weft_parallel_mesh(&own, ranks, where, mesh));
    const int axis = weft_mesh_axis(mesh, "dp");
    const int dp = axis >= 0 ? mesh->axis[axis].size : 1;
    if (dp % cfg)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: cfg=%lld: the other axes leave %d of %d ranks, which do not make "
                         "halves: start %lld (mpirun -n)",
                         where, (long long)cfg, dp, ranks, (long long)(ranks / dp * (dp + 1)));
    return WEFT_OK;
}

/* ---- in words ------------------------------------------------------------------------------ */

const char *weft_parallel_given(const weft_parallel *p)
{
    const weft_parallel *d = &weft_parallel_default;
    const struct {
        const char *name;
        bool given;
    } key[] = {{"cfg", p->cfg != d->cfg},
               {"text", text_is_apart(p)},
               {"dp", p->dp != d->dp},
               {"fsdp", p->fsdp != d->fsdp},
               {"ep", p->ep != d->ep},
               {"zero", p->zero != d->zero},
               {"tp", p->tp != d->tp},
               {"sequence", p->sequence != d->sequence},
               {"cp", p->cp != d->cp},
               {"context", p->context.kind || p->context.ulysses || p->context.ring},
               {"pp", p->pp != d->pp},
               {"schedule", strcmp(p->schedule, d->schedule) != 0},
               {"virtual_stages", p->virtual_stages != d->virtual_stages},
               {"microbatches", p->microbatches != d->microbatches},
               {"order", p->order.count != 0}};
    for (int i = 0; i < WEFT_COUNT(key); i++)
        if (key[i].given)
            return key[i].name;
    return NULL;
}

bool weft_parallel_context(int64_t cp, bool heads, int64_t index, weft_context *out)
{
    for (int kind = 0; kind <= heads; kind++)
        for (int64_t ring = 1; ring <= cp; ring++) {
            if (cp % ring || (kind && ring == cp)) /* one rank has no heads to exchange */
                continue;
            if (index-- > 0)
                continue;
            *out = (weft_context){.kind = kind ? WEFT_CONTEXT_HEADS : WEFT_CONTEXT_ULYSSES,
                                  .ulysses = cp / ring,
                                  .ring = ring};
            if (cp == 1)
                *out = (weft_context){0};
            return true;
        }
    return false;
}

static void put_degree(weft_buf *out, const char *name, int64_t value, int64_t usual)
{
    if (value > usual)
        weft_buf_printf(out, "%s%s=%lld", out->len ? " " : "", name, (long long)value);
}

void weft_parallel_name(const weft_parallel *p, weft_buf *out)
{
    weft_buf own = {0};
    const int64_t ulysses = p->context.ulysses, ring = p->context.ring;
    put_degree(&own, "cfg", p->cfg, 1);
    put_degree(&own, "dp", p->dp, 1);
    put_degree(&own, "zero", p->zero, 0);
    put_degree(&own, "fsdp", p->fsdp, 1);
    put_degree(&own, "ep", p->ep, 1);
    put_degree(&own, "tp", p->tp, 1);
    if (p->sequence)
        weft_buf_printf(&own, " sequence=true");
    put_degree(&own, "cp", p->cp, 1);
    if (ulysses > 1 && ring > 1)
        weft_buf_printf(&own, " context={%sulysses: %lld, ring: %lld}",
                        p->context.kind == WEFT_CONTEXT_HEADS ? "kind: heads, " : "",
                        (long long)ulysses, (long long)ring);
    else if (p->cp > 1)
        weft_buf_printf(&own, " context=%s", ring > 1 ? "ring" : context_names[p->context.kind]);
    put_degree(&own, "pp", p->pp, 1);
    if (p->pp > 1)
        weft_buf_printf(&own, " schedule=%s", p->schedule);
    put_degree(&own, "virtual_stages", p->virtual_stages, 1);
    put_degree(&own, "microbatches", p->microbatches, 0);
    weft_buf_printf(out, "%s", own.len ? own.data : "1 rank");
    weft_buf_free(&own);
}

/* ---- what is told -------------------------------------------------------------------------- */

static int64_t wire_bytes(const weft_parallel_part *part, int axis)
{
    int64_t bytes = 0;
    for (int32_t n = 0; n < weft_graph_node_count(part->graph); n++) {
        const weft_node *node = weft_graph_node(part->graph, n);
        if (weft_op_has(node->op, WEFT_TRAIT_COLLECTIVE) &&
            ((const weft_attr_comm *)node->attr)->axis == axis)
            bytes += weft_node_cost(part->graph, n).wire_bytes;
    }
    return bytes * part->times;
}

void weft_parallel_print(const weft_mesh *mesh, const weft_recipe_list *const *lists, int count,
                         int zero, const weft_parallel_part *part, int parts, weft_buf *out)
{
    static const char *const kept[] = {"", ", optimizer states in parts",
                                       ", optimizer states and gradients in parts"};
    weft_buf_printf(out, "  axis  ranks  %-58s  sent a step and rank\n", "splits");
    for (int a = 0; a < mesh->axis_count; a++) {
        const weft_recipe_list *list = strcmp(mesh->axis[a].name, WEFT_STAGES_AXIS)
                                           ? weft_recipe_list_find(lists, count, mesh->axis[a].name)
                                           : &weft_recipe_list_stages;
        char what[120], bytes[32];
        int64_t sent = 0;
        for (int i = 0; i < parts; i++)
            sent += wire_bytes(&part[i], a);
        snprintf(what, sizeof what, "%s%s", list ? list->what : "",
                 strcmp(mesh->axis[a].name, "dp") ? "" : kept[zero]);
        weft_buf_printf(out, "  %-4s  %5d  %-58s  %s\n", mesh->axis[a].name, mesh->axis[a].size,
                        what, weft_format_bytes(sent, bytes));
    }
}

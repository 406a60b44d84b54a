#include "transform/sharding/mesh_config.h"

#include "base/given.h"
#include "base/log.h"
#include "transform/sharding/mesh_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Struct of the standalone section: only the member `p`. */
typedef struct weft_parallel_alone {
    weft_parallel p;
} weft_parallel_alone;

static const char *const context_names[] = {"ulysses", "ring", "auto", "heads", NULL};
static const weft_key context_keys[] = {
    {"kind", WEFT_KEY_ENUM, offsetof(weft_cp_config, kind), "ulysses", "",
     "attention over split tokens; ulysses: an all-to-all exchanges tokens for heads. "
     "ring: keys and values rotate, and ranks may exceed heads. heads: as ulysses, between "
     "spatial and temporal layers (STDiT3, Latte). auto: the lower estimate, with "
     "<out>/profile.json if present",
     .choices = context_names},
    {"ulysses", WEFT_KEY_I64, offsetof(weft_cp_config, ulysses), "0", "ranks",
     "inner degree of cp, whose ranks exchange heads", .min = 0, .max = 1 << 20},
    {"ring", WEFT_KEY_I64, offsetof(weft_cp_config, ring), "0", "ranks",
     "outer degree of cp, around which keys and values rotate", .min = 0, .max = 1 << 20},
};
const weft_section weft_cp_section = {
    "context",
    "how cp splits attention; ulysses, ring, auto, or both as {ulysses: 2, ring: 2}",
    sizeof(weft_cp_config),
    context_keys,
    WEFT_COUNT(context_keys),
    .single = "kind"};

static const char *const overlap_names[] = {"on", "off", "auto", NULL};
#define LAYER_SLICES(member, name_, earlier_, fallback_, least, help_)                             \
    {                                                                                              \
        name_, WEFT_KEY_I64, offsetof(weft_comm_overlap, member), fallback_, "slices", help_,      \
            .min = least, .max = 1 << 20, .earlier = earlier_                                      \
    }
static const weft_key overlap_keys[] = {
    {"kind", WEFT_KEY_ENUM, offsetof(weft_comm_overlap, kind), "on", "",
     "overlap of layer slices; on: as the other keys say, at most the number that exists. "
     "off: whole layers, one sample at a time. auto: the lowest estimate",
     .choices = overlap_names},
    LAYER_SLICES(time, "time", NULL, "4", 1,
                 "slices of spatial layers along time, over all samples of a rank"),
    LAYER_SLICES(space, "space", NULL, "4", 1, "slices of temporal layers along space"),
    LAYER_SLICES(lift_time, "early_time", "lift_time", "1", 0,
                 "slices of a spatial layer whose parts are exchanged one layer early"),
    LAYER_SLICES(lift_space, "early_space", "lift_space", "3", 0,
                 "slices of a temporal layer whose parts are exchanged one layer early"),
    {"heads", WEFT_KEY_I64, offsetof(weft_comm_overlap, heads), "1", "groups",
     "head groups of attention that exchanges tokens for heads (context: ulysses); one "
     "group is exchanged while another is computed. auto: the lowest estimate",
     .min = 0, .max = 1 << 20, .zero = "auto"},
    {"chunks", WEFT_KEY_I64, offsetof(weft_comm_overlap, chunks), "1", "chunks",
     "token chunks of products with an all-reduce (tp); one chunk is exchanged while the "
     "next is computed. auto: the lowest estimate",
     .min = 0, .max = 1 << 20, .zero = "auto"},
};
const weft_section weft_comm_overlap_section = {
    "comm_overlap",
    "overlap of communication and compute; on, off, auto. {time: 4, space: 4, early_time: "
    "1, early_space: 3} for models with spatial and temporal layers, {heads: 4} with cp, "
    "{chunks: 4} with tp",
    sizeof(weft_comm_overlap),
    overlap_keys,
    WEFT_COUNT(overlap_keys),
    .single = "kind"};

static const weft_key parallel_keys[] = {WEFT_PARALLEL_KEYS(weft_parallel_alone, p)};
const weft_section weft_parallel_section = {
    "parallel",
    "mesh degrees, pipeline schedule; the degrees multiply to the number of ranks. Heads, "
    "tokens, samples and widths need not be divisible",
    sizeof(weft_parallel), parallel_keys, WEFT_COUNT(parallel_keys)};

const weft_parallel weft_parallel_default = {.cfg = 1,
                                             .fsdp = 1,
                                             .ep = 1,
                                             .tp = 1,
                                             .pp = 1,
                                             .schedule = "1f1b",
                                             .plan = "",
                                             .text = "shared",
                                             .overlap = WEFT_COMM_OVERLAP_DEFAULT};

/* ---- mesh ---------------------------------------------------------------------------------- */

enum { AXES = 6 };
static const char *const axis_name[AXES] = {WEFT_PP_STAGES_AXIS, "dp", "fsdp", "ep", "cp", "tp"};

typedef struct degrees {
    int64_t dp, fsdp, ep, ring, ulysses, tp, pp;
} degrees;

static weft_status context_of(const weft_parallel *p, const char *where, degrees *d)
{
    d->ulysses = p->context.ulysses ? p->context.ulysses : 1;
    d->ring = p->context.ring ? p->context.ring : 1;
    const int64_t both = d->ulysses * d->ring;
    if (p->context.kind == WEFT_CP_AUTO && both == 1 && p->cp > 1)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = where, .key = "parallel.context", .value = "auto"),
                          "auto is available for the training of a run only; use ulysses or ring");
    if (!p->context.ulysses && !p->context.ring && p->cp)
        *(p->context.kind == WEFT_CP_RING ? &d->ring : &d->ulysses) = p->cp;
    else if (p->cp && p->cp != both)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = where, .key = "parallel.cp", WEFT_NUMBER(p->cp)),
                          "cp is %" PRId64 ", but context's ulysses %" PRId64 " x ring %" PRId64
                          " make %" PRId64 "; remove "
                          "cp, or change one of them",
                          p->cp, d->ulysses, d->ring, both);
    return WEFT_OK;
}

static weft_status bad_ranks(const degrees *d, int64_t rest, int ranks, const char *where)
{
    char sizes[200], experts[40] = "", pp_text[40] = "";
    if (d->ep > 1)
        snprintf(experts, sizeof experts, " x ep %" PRId64, d->ep);
    if (d->pp > 1)
        snprintf(pp_text, sizeof pp_text, " x pp %" PRId64, d->pp);
    snprintf(sizes, sizeof sizes, "fsdp %" PRId64 " x cp %" PRId64 " x tp %" PRId64 "%s%s", d->fsdp,
             d->ring * d->ulysses, d->tp, experts, pp_text);
    if (d->dp)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = where, .key = "parallel", WEFT_NUMBER(d->dp * rest)),
                          "dp %" PRId64 " x %s make %" PRId64
                          " ranks, but %d run (mpirun -n %" PRId64 ")",
                          d->dp, sizes, d->dp * rest, ranks, d->dp * rest);
    const int64_t less = ranks / rest * rest;
    if (less == 0)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = where, .key = "parallel", WEFT_NUMBER(rest)),
                          "%s need %" PRId64 " ranks, but %d run (mpirun -n %" PRId64 ")", sizes,
                          rest, ranks, rest);
    return weft_error(WEFT_MSG_LAYOUT_INVALID,
                      WEFT_AT(.file = where, .key = "parallel", WEFT_NUMBER(ranks)),
                      "%s do not divide the %d ranks that run; start %" PRId64 " or %" PRId64
                      " ranks (mpirun -n)",
                      sizes, ranks, less, less + rest);
}

/* Checks the product: each degree is below 2^20, but the product may overflow. */
static weft_status check_product(const degrees *d, const char *where)
{
    enum { MOST = 1 << 20 };
    const int64_t degree[] = {d->fsdp, d->ep, d->ring, d->ulysses, d->tp, d->pp, d->dp ? d->dp : 1};
    int64_t product = 1;
    for (int i = 0; i < WEFT_COUNT(degree); i++) {
        product *= degree[i];
        if (product > MOST)
            return weft_error(WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.file = where, .key = "parallel"),
                              "the degrees make more than %d ranks, the limit", MOST);
    }
    return WEFT_OK;
}

static int axis_index(const char *name)
{
    for (int i = 0; i < AXES; i++)
        if (!strcmp(name, axis_name[i]))
            return i;
    return -1;
}

static weft_status order_of(const weft_parallel *p, const char *where, int order[AXES])
{
    int count = 0;
    bool taken[AXES] = {false};
    for (int64_t i = 0; i < p->order.count; i++) {
        const int axis = axis_index(p->order.item[i]);
        if (axis < 0 || taken[axis])
            return weft_error(
                WEFT_MSG_LAYOUT_INVALID,
                WEFT_AT(.file = where, .key = "parallel.axis_order", .value = p->order.item[i]),
                "'%s' %s; the axes are pp, dp, fsdp, ep, cp, tp", p->order.item[i],
                axis < 0 ? "is not an axis" : "occurs twice");
        taken[axis] = true;
        order[count++] = axis;
    }
    for (int i = 0; i < AXES; i++)
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
    const long value = strtol(p->text, &end, 10);
    if (end == p->text || *end || value < 0 || value >= ranks)
        return weft_error(
            WEFT_MSG_LAYOUT_INVALID,
            WEFT_AT(.file = where, .key = "text_encoder_rank", .value = p->text),
            "'%s' is neither shared nor a rank from 0 to %d that has the text encoders", p->text,
            ranks - 1);
    *rank = (int)value;
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
    int order[AXES];
    if (p->plan && p->plan[0])
        return weft_error(
            WEFT_MSG_LAYOUT_INVALID,
            WEFT_AT(.file = where, .key = "parallel.layout_file", .value = p->plan),
            "a layout of `weft plan layout --run-config` is for the training of its run; "
            "use degrees here");
    if (p->cfg > 1)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = where, .key = "parallel.cfg", WEFT_NUMBER(p->cfg)),
                          "training has no guidance halves; only weft generate and weft eval split "
                          "them. Remove the key; dp uses the ranks");
    if (text_is_apart(p))
        return weft_error(
            WEFT_MSG_LAYOUT_INVALID,
            WEFT_AT(.file = where, .key = "parallel.text_encoder_rank", .value = p->text),
            "'%s' is for weft generate and weft eval; in training all ranks have the "
            "text encoders. Remove the key",
            p->text);
    if (weft_comm_overlap_has_auto(&p->overlap))
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = where, .key = "parallel.comm_overlap", .value = "auto"),
                          "auto is available for the training of a run and for weft generate only, "
                          "which print their choice; use that, on or off");
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
    for (int i = 0; i < AXES; i++)
        switch (order[i]) {
        case 0: add_axis(mesh, WEFT_PP_STAGES_AXIS, d.pp); break;
        case 1: add_axis(mesh, "dp", d.dp); break;
        case 2: add_axis(mesh, "fsdp", d.fsdp); break;
        case 3: add_axis(mesh, "ep", d.ep); break;
        case 4:
            add_axis(mesh, "ring", d.ring);
            add_axis(mesh, p->context.kind == WEFT_CP_HEADS ? "heads" : "cp", d.ulysses);
            break;
        default: add_axis(mesh, p->sequence ? "sp" : "tp", d.tp); break;
        }
    return WEFT_OK;
}

weft_status weft_parallel_mesh_denoise(const weft_parallel *p, int ranks, int branches,
                                       const char *where, weft_mesh *mesh)
{
    weft_parallel own = *p;
    const int64_t cfg = p->cfg ? p->cfg : 1;
    if (p->pp > 1)
        return weft_error(
            WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.file = where, .key = "pp", WEFT_NUMBER(p->pp)),
            "pipeline stages would execute a denoising step in sequence; use fsdp=%" PRId64
            " to split "
            "the weights into %" PRId64 " parts, or tp or cp to split the work",
            p->pp, p->pp);
    if (cfg > 1 && cfg != branches)
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = where, .key = "cfg", WEFT_NUMBER(cfg)),
                          "this guidance has %d parts, not %" PRId64 "; use cfg=%d, or remove cfg",
                          branches, cfg, branches);
    own.cfg = 1;
    own.text = NULL;
    own.dp *= cfg;
    WEFT_TRY(weft_parallel_mesh(&own, ranks, where, mesh));
    const int axis = weft_mesh_axis(mesh, "dp");
    const int dp = axis >= 0 ? mesh->axis[axis].size : 1;
    if (dp % cfg)
        return weft_error(
            WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.file = where, .key = "cfg", WEFT_NUMBER(cfg)),
            "the other axes leave %d of %d ranks, which %" PRId64 " does not divide; start "
            "%d ranks (mpirun -n)",
            dp, ranks, cfg, ranks / dp * (dp + 1));
    return WEFT_OK;
}

/* ---- names --------------------------------------------------------------------------------- */

const char *weft_parallel_is_set(const weft_parallel *p)
{
    const weft_parallel *d = &weft_parallel_default;
    const weft_given key[] = {{"cfg", p->cfg != d->cfg},
                              {"text_encoder_rank", text_is_apart(p)},
                              {"dp", p->dp != d->dp},
                              {"fsdp", p->fsdp != d->fsdp},
                              {"ep", p->ep != d->ep},
                              {"zero", p->zero != d->zero},
                              {"tp", p->tp != d->tp},
                              {"sequence_parallel", p->sequence != d->sequence},
                              {"cp", p->cp != d->cp},
                              {"context", p->context.kind || p->context.ulysses || p->context.ring},
                              {"pp", p->pp != d->pp},
                              {"schedule", strcmp(p->schedule, d->schedule) != 0},
                              {"virtual_stages", p->virtual_stages != d->virtual_stages},
                              {"microbatches", p->microbatches != d->microbatches},
                              {"axis_order", p->order.count != 0}};
    return weft_first_given(key, WEFT_COUNT(key));
}

bool weft_parallel_context(int64_t cp, bool heads, int64_t index, weft_cp_config *out)
{
    for (int kind = 0; kind <= heads; kind++)
        for (int64_t ring = 1; ring <= cp; ring++) {
            if (cp % ring || (kind && ring == cp)) /* one rank has no heads to exchange */
                continue;
            if (index-- > 0)
                continue;
            *out = (weft_cp_config){
                .kind = kind ? WEFT_CP_HEADS : WEFT_CP_ULYSSES, .ulysses = cp / ring, .ring = ring};
            if (cp == 1)
                *out = (weft_cp_config){0};
            return true;
        }
    return false;
}

static void put_degree(weft_buf *out, const char *name, int64_t value, int64_t usual)
{
    if (value > usual)
        weft_buf_printf(out, "%s%s=%" PRId64, out->len ? " " : "", name, value);
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
        weft_buf_printf(&own, " context={%sulysses: %" PRId64 ", ring: %" PRId64 "}",
                        p->context.kind == WEFT_CP_HEADS ? "kind: heads, " : "", ulysses, ring);
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

/* ---- table of axes ------------------------------------------------------------------------- */

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
    static const char *const zero_names[] = {"", ", optimizer states in parts",
                                             ", optimizer states and gradients in parts"};
    weft_buf_printf(out, "  axis  ranks  %-58s  sent a step and rank\n", "splits");
    for (int a = 0; a < mesh->axis_count; a++) {
        const weft_recipe_list *list = strcmp(mesh->axis[a].name, WEFT_PP_STAGES_AXIS)
                                           ? weft_recipe_list_find(lists, count, mesh->axis[a].name)
                                           : &weft_recipe_list_stages;
        char what[120], bytes[32];
        int64_t sent = 0;
        for (int i = 0; i < parts; i++)
            sent += wire_bytes(&part[i], a);
        snprintf(what, sizeof what, "%s%s", list ? list->what : "",
                 strcmp(mesh->axis[a].name, "dp") ? "" : zero_names[zero]);
        weft_buf_printf(out, "  %-4s  %5d  %-58s  %s\n", mesh->axis[a].name, mesh->axis[a].size,
                        what, weft_format_bytes(sent, bytes));
    }
}

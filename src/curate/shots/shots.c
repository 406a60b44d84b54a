/* Shot boundaries in one pass with a bounded window of small frames.
 *
 * Hard cuts: consecutive frames whose structure does not match even after motion compensation and a
 * change of light. Not a cut: the earlier content returns within a few frames (a flash, an
 * occlusion).
 *
 * Gradual transitions: two frames up to 110 frames apart (at 30 frames a second) whose structure
 * differs as much as across a cut, without a cut in between, and with evidence other than motion:
 *   - a straight path: pixels change from the old to the new value without detours, so that the sum
 *     of the steps is not much longer than the direct distance. This holds for dissolves and for
 *     every kind of mask (wipes, irises, pixel dissolves), and not for moving content;
 *   - an even path: each quarter of the span covers a quarter of the distance (long dissolves of
 *     moving content, whose path is not straight);
 *   - a dip: contrast is lost in between (fades through a colour, blurs). The ends of the dip are
 *     where the distance of the frames from that colour changes from a ramp to a constant;
 *   - a push: the frames in between show both contents, shifted, side by side. */
#include "curate/shots/shots.h"

#include "base/memory.h"
#include "curate/shots/shots_classic.h"
#include "curate/shots/shots_match.h"
#include "curate/shots/shots_network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING = 256, /* window for spans, in frames; more than twice the longest span */
    FINE = 32,  /* window for cuts, in frames */
    /* longest flash in frames, and the delay of the decision about a cut */
    LOOKAHEAD = WEFT_SHOT_LEAVE_OUT,
    HOLD = 8, /* retained frames of a uniform run */
    SPANS = 8,
    CANDIDATES = 512,
    GAP = 12,   /* minimum frames between two gradual transitions */
    AFTER = 40, /* frames after a transition before it is final */
    FADE = 90,  /* frames of a fade to its colour, at most */
};
static const int span_of[SPANS] = {6, 10, 16, 24, 36, 54, 80, 110};
/* Frames a second of spans, so that spans are long enough in time. */
static const double span_rate = 30;

/* Thresholds; options.threshold scales the first two. */
static const float cut_mismatch = 0.34f, span_mismatch = 0.385f;
/* Factors on cut_mismatch. Below the first, two frames show the same content. Below the second,
 * frames in between may be interpolated. */
static const float same_image = 0.6f, alike_mismatch = 0.4f;
/* Noise: frames of one shot match worse than neighbours by the first factor, and better than frames
 * of two shots by the second. */
static const float noisy = 1.35f, noisy_share = 0.6f;
/* Noise in a fade differs from frame to frame by this share of its contrast. */
static const float noise_share = 0.4f;
/* Path length of moving content relative to that of a mixture: 1.3 to 1.5 in real video, 1.05 in
 * dissolves. */
static const float mixed_path = 1.5f;
static const float even_residue = 0.25f, even_share = 0.15f, even_bonus = 1.5f;
static const float mask_residue = 0.22f, mask_share = 0.06f, mask_bonus = 2.0f;
static const float uniform_spread = 2.0f, least_difference = 6, span_difference = 35;

typedef struct slot {
    weft_shot_frame f;
    int64_t index;  /* frame number in the video */
    double path;    /* for spans: sum of step differences up to here, never reset */
    float mismatch; /* mismatch with the previous frame */
    float step;     /* difference to the frame before */
    bool cut;       /* a new shot begins here */
    bool mixed;     /* not decoded */
    bool transient; /* part of a flash or occlusion; earlier content returns */
} slot;

typedef struct candidate {
    int64_t start, end; /* positions: last old and first new frame */
    float score;
    bool dip;
    bool fade; /* a dip to nothing but noise */
    /* Selection of candidates: best total score up to this one, and its predecessor. */
    float sum;
    int before;
} candidate;

struct weft_shot_detector {
    weft_shot_options options;
    float factor;
    slot *fine;          /* every frame, for cuts */
    int64_t fine_count;  /* positions pushed; position p is fine[p % FINE] */
    int64_t frames;      /* frames of the video */
    int64_t uniform_run; /* length of the current run of uniform frames */
    int64_t decided;     /* cuts are decided for fine positions below this */
    int64_t last_cut;    /* frame; -1: none */
    slot *ring;          /* every `stride`-th frame since the last cut, for spans */
    int64_t stride, since;
    bool left_out;  /* a flash between the last frame of the ring and the next */
    int64_t count;  /* positions pushed to the ring */
    int64_t looked; /* spans that end below this were tried */
    int64_t gap;
    int64_t settled; /* transitions before this position are final */
    /* The fade that was measured last. */
    int64_t fade_low, fade_count, fade_start, fade_end;
    bool fade_deep;
    float fade_mismatch; /* mismatch of its two ends */
    float fade_noise;    /* mismatch within one shot near the fade */
    candidate *candidate;
    int64_t candidate_count;
    weft_boundary *boundary;
    int64_t boundary_count, boundary_capacity;
    weft_classic_shots *classic; /* the named methods */
    weft_network_shots *network; /* transnetv2 */
};

static float factor_of(const weft_shot_options *o)
{
    return o->threshold > 0 ? (float)o->threshold : 1;
}

static slot *at(const weft_shot_detector *d, int64_t position)
{
    return &d->ring[position % RING];
}

static slot *fine_at(const weft_shot_detector *d, int64_t position)
{
    return &d->fine[position % FINE];
}

weft_status weft_shot_detector_create(const weft_shot_options *options, weft_shot_detector **out)
{
    weft_shot_detector *d;
    WEFT_TRY(WEFT_NEW(d, 1, "the shot detector"));
    if (options)
        d->options = *options;
    if (d->options.method < 0 || d->options.method >= WEFT_SHOTS_METHODS ||
        !(d->options.threshold >= 0) || d->options.min_frames < 0 || !(d->options.mix >= 0) ||
        !(d->options.fps >= 0)) {
        weft_free(d);
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "method, threshold, shortest shot, mix or rate is outside its range");
    }
    if (d->options.method != WEFT_SHOTS_STRUCTURE) {
        weft_status_code status = d->options.method == WEFT_SHOTS_NETWORK
                                      ? weft_network_shots_create(&d->options, &d->network)
                                      : weft_classic_shots_create(&d->options, &d->classic);
        if (status != WEFT_OK) {
            weft_free(d);
            return status;
        }
    } else {
        d->factor = factor_of(&d->options);
        if (d->options.min_frames == 0)
            d->options.min_frames = 4;
        const double fps = d->options.fps > 0 ? d->options.fps : 25;
        d->last_cut = -1;
        d->settled = -GAP;
        d->stride = (int64_t)fmax(1, floor(fmin(fps, 1000) / span_rate + 0.5));
        d->gap = (int64_t)fmin(GAP, fmax(3, fps / (double)d->stride / 2));
        d->fine = weft_calloc(FINE, sizeof *d->fine);
        d->ring = weft_calloc(RING, sizeof *d->ring);
        d->candidate = weft_calloc(CANDIDATES, sizeof *d->candidate);
        if (!d->fine || !d->ring || !d->candidate) {
            weft_shot_detector_free(d);
            return weft_no_memory("the shot detector");
        }
    }
    *out = d;
    return WEFT_OK;
}

void weft_shot_detector_free(weft_shot_detector *d)
{
    if (!d)
        return;
    weft_classic_shots_free(d->classic);
    weft_network_shots_free(d->network);
    weft_free(d->fine);
    weft_free(d->ring);
    weft_free(d->candidate);
    weft_free(d->boundary);
    weft_free(d);
}

/* Keeps the list ascending: boundaries are found nearly in order. */
static weft_status add_boundary(weft_shot_detector *d, weft_boundary b)
{
    WEFT_TRY(weft_grow((void **)&d->boundary, d->boundary_count, &d->boundary_capacity,
                       sizeof *d->boundary));
    int64_t i = d->boundary_count++;
    for (; i > 0 && d->boundary[i - 1].start > b.start; i--)
        d->boundary[i] = d->boundary[i - 1];
    d->boundary[i] = b;
    return WEFT_OK;
}

static bool uniform(const slot *s)
{
    return s->f.spread < uniform_spread;
}

/* True if contrast rises or falls evenly over the frames from `first` on one side of a step, and
 * the step fits the ramp (direction +1: the step leads to `first`; -1: from `first`). The step is
 * then part of a fade, in which coding leaves little structure. */
static bool is_ramp(const weft_shot_detector *d, int64_t first, int direction)
{
    enum { RAMP = 4 };
    const int64_t last = first + direction * RAMP, other = first - direction;
    if (last < 0 || last <= d->fine_count - FINE || last >= d->fine_count)
        return false;
    const float whole = fine_at(d, last)->f.spread - fine_at(d, first)->f.spread;
    const float step = fine_at(d, first)->f.spread - fine_at(d, other)->f.spread;
    float high = 0;
    for (int64_t p = first; p != last; p += direction) {
        if ((fine_at(d, p + direction)->f.spread - fine_at(d, p)->f.spread) / whole < -0.1f)
            return false;
        high = fmaxf(high, fine_at(d, p)->f.spread);
    }
    high = fmaxf(high, fine_at(d, last)->f.spread);
    const float share = step * RAMP / whole;
    return fabsf(whole) > 0.2f * high && share > -0.3f && share < 1.8f;
}

/* A set of up to COUNT values, for their median. */
typedef struct some {
    float value[2 * FINE];
    int count;
} some;

static float median(some *s)
{
    for (int i = 1; i < s->count; i++)
        for (int k = i; k > 0 && s->value[k] < s->value[k - 1]; k--) {
            const float v = s->value[k];
            s->value[k] = s->value[k - 1];
            s->value[k - 1] = v;
        }
    return s->count ? s->value[s->count / 2] : 0;
}

/* Mismatch of neighbours around a position, caused by noise or water. It is the best mismatch that
 * two frames of one shot reach. */
static float noise_around(const weft_shot_detector *d, int64_t position)
{
    some s = {.count = 0};
    for (int64_t p = position - 1; p > 0 && p > position - 13 && !fine_at(d, p)->cut; p--)
        s.value[s.count++] = fine_at(d, p)->mismatch;
    for (int64_t p = position + 1; p < d->fine_count && p <= position + LOOKAHEAD; p++)
        s.value[s.count++] = fine_at(d, p)->mismatch;
    return median(&s);
}

/* True if frames a and b show the same content, so that `between` is a flash or an occlusion: they
 * match better than `same`. If `between` has lost its contrast to light, a and b need only match
 * better than across a cut. */
static bool is_same(const slot *a, const slot *between, const slot *b, float same, float cut)
{
    const bool pale = between->f.spread < 0.6f * fminf(a->f.spread, b->f.spread);
    return weft_shot_mismatch(&a->f, &b->f, 6, 4) < (pale ? cut : same);
}

/* True if the frame at `position` begins a shot. Requires the frames up to position + LOOK, or the
 * end of the video. */
static bool is_cut(const weft_shot_detector *d, int64_t position)
{
    const slot *now = fine_at(d, position), *before = fine_at(d, position - 1);
    const float threshold = cut_mismatch * d->factor;
    if (now->mismatch < threshold || now->step < least_difference || uniform(now) ||
        uniform(before))
        return false;
    /* At the darkest point of a fade, both sides have less contrast than their own neighbours. */
    float high_before = 0, high_after = 0;
    for (int64_t k = 0; k <= LOOKAHEAD; k++) {
        if (position - 1 - k >= 0)
            high_before = fmaxf(high_before, fine_at(d, position - 1 - k)->f.spread);
        if (position + k < d->fine_count)
            high_after = fmaxf(high_after, fine_at(d, position + k)->f.spread);
    }
    if (before->f.spread < 0.6f * high_before && now->f.spread < 0.6f * high_after)
        return false;
    if (is_ramp(d, position, 1) || is_ramp(d, position - 1, -1))
        return false;
    /* In content that never matches (noise, water), a cut must exceed the usual mismatch. */
    float usual = 0;
    int n = 0;
    for (int64_t p = position - 1; p > 0 && p > position - 13 && !fine_at(d, p)->cut; p--, n++)
        usual += fine_at(d, p)->mismatch;
    if (n >= 4 && now->mismatch < 1.6f * usual / (float)n)
        return false;
    const float noise = fminf(noisy * noise_around(d, position), noisy_share * now->mismatch);
    const float same = fmaxf(same_image * threshold, noise);
    for (int64_t k = 1; k <= LOOKAHEAD; k++) {
        if (position + k < d->fine_count && !uniform(fine_at(d, position + k)) &&
            is_same(before, now, fine_at(d, position + k), same, threshold))
            return false; /* earlier content returns */
        const int64_t p = position - 1 - k;
        if (p < 0 || p <= d->fine_count - FINE || fine_at(d, p + 1)->cut)
            break;
        if (is_same(fine_at(d, p), before, now, same, threshold))
            return false; /* the content has returned */
    }
    return true;
}

/* Marks a flash that begins at `position` and ends with the earlier content. */
static void mark_transient(weft_shot_detector *d, int64_t position)
{
    const slot *now = fine_at(d, position), *before = fine_at(d, position - 1);
    const float threshold = cut_mismatch * d->factor;
    if (now->transient || uniform(before) || now->step < 2 * least_difference)
        return;
    const float same = fmaxf(same_image * threshold,
                             fminf(noisy * noise_around(d, position), noisy_share * now->mismatch));
    for (int64_t k = 1; k <= LOOKAHEAD && position + k < d->fine_count; k++) {
        const slot *after = fine_at(d, position + k);
        if (uniform(after) || weft_shot_difference(&before->f, &after->f) > 0.4f * now->step ||
            !is_same(before, now, after, same, threshold))
            continue;
        for (int64_t p = position; p < position + k; p++)
            fine_at(d, p)->transient = true;
        return;
    }
}

/* Decides about one frame. */
static weft_status decide_cut(weft_shot_detector *d, int64_t p)
{
    if (p == 0)
        return WEFT_OK;
    if (!is_cut(d, p)) {
        mark_transient(d, p);
        return WEFT_OK;
    }
    const int64_t index = fine_at(d, p)->index;
    if (d->last_cut >= 0 && index - d->last_cut < d->options.min_frames)
        return WEFT_OK; /* a flash over the first frames of the new shot */
    d->last_cut = index;
    fine_at(d, p)->cut = true;
    return add_boundary(d, (weft_boundary){.start = index,
                                           .end = index,
                                           .score = fine_at(d, p)->mismatch / cut_mismatch});
}

/* Lowest contrast between two positions, relative to the lower of the two. */
static float contrast_dip(const weft_shot_detector *d, int64_t from, int64_t to)
{
    const float ends = fminf(at(d, from)->f.spread, at(d, to)->f.spread);
    float low = 1e9f;
    for (int64_t p = from + 1; p < to; p++)
        low = fminf(low, at(d, p)->f.spread);
    return low / fmaxf(ends, 1e-3f);
}

/* Mean absolute difference between a frame and a composition of two frames along one axis. Before
 * `edge`, the composition is `first`, shifted so that its end meets the edge; the rest is `second`
 * from its beginning. */
static float push_error(const uint8_t *now, const uint8_t *first, const uint8_t *second,
                        bool vertical, int edge)
{
    const int length = vertical ? COARSE_H : COARSE_W;
    int error = 0;
    for (int y = 0; y < COARSE_H; y++)
        for (int x = 0; x < COARSE_W; x++) {
            const int along = vertical ? y : x;
            const int from = along < edge ? along + length - edge : along - edge;
            const uint8_t *source = along < edge ? first : second;
            const int pick = vertical ? from * COARSE_W + x : y * COARSE_W + from;
            const int difference = now[y * COARSE_W + x] - source[pick];
            error += difference < 0 ? -difference : difference;
        }
    return (float)error / COARSE_AREA;
}

/* True if the frames in between are a push. At three times, the best composition must fit the frame
 * far better than either end, and its edge must advance. */
static bool is_push(const weft_shot_detector *d, int64_t from, int64_t to)
{
    const uint8_t *old = at(d, from)->f.coarse, *new = at(d, to)->f.coarse;
    for (int direction = 0; direction < 4; direction++) {
        const bool vertical = direction & 1, forward = direction & 2;
        const int length = vertical ? COARSE_H : COARSE_W;
        int good = 0, tried = 0, last_edge = -1;
        for (int64_t p = from + 1; p < to; p++) {
            const uint8_t *now = at(d, p)->f.coarse;
            float best = 1e9f, still = fminf(push_error(now, old, old, vertical, 0),
                                             push_error(now, new, new, vertical, 0));
            int best_edge = 0;
            for (int edge = 1; edge < length; edge++) {
                /* forward: the new content enters from the top or left */
                const float e = forward ? push_error(now, new, old, vertical, edge)
                                        : push_error(now, old, new, vertical, edge);
                if (e < best)
                    best = e, best_edge = edge;
            }
            const int covered = forward ? best_edge : length - best_edge;
            if (covered < length / 6 || covered > length - length / 6)
                continue; /* not enough contrast */
            tried++;
            good += best < 0.5f * still && covered >= last_edge;
            last_edge = covered;
        }
        if (tried >= 2 && good * 10 >= tried * 7)
            return true;
    }
    return false;
}

static bool cut_between(const weft_shot_detector *d, int64_t from, int64_t to)
{
    for (int64_t p = from + 1; p <= to; p++)
        if (at(d, p)->cut)
            return true;
    return false;
}

/* Position of the frame at `p` between the two ends: the share of the distance covered. Also
 * returns the squared component off the straight line, relative to its length. 0: the frame is a
 * mixture of the ends. */
static float mixture_residue(const weft_shot_detector *d, int64_t from, int64_t to, int64_t p,
                             float *share)
{
    const uint8_t *a = at(d, from)->f.coarse, *b = at(d, to)->f.coarse;
    const uint8_t *m = at(d, p)->f.coarse;
    double dd = 0, cd = 0, cc = 0;
    for (int i = 0; i < 3 * COARSE_AREA; i++) {
        const double v = b[i] - a[i], c = m[i] - a[i];
        dd += v * v;
        cd += c * v;
        cc += c * c;
    }
    *share = dd > 0 ? (float)(cd / dd) : 0;
    return dd > 0 ? (float)((cc - cd * cd / dd) / dd) : 1;
}

/* True for an even path: each quarter of the span covers a quarter of the distance. Long dissolves
 * of moving content are even, but not straight. Camera motion leaves the first content at once. */
static bool is_even(const weft_shot_detector *d, int64_t from, int64_t to)
{
    for (int k = 1; k < 4; k++) {
        float share;
        if (mixture_residue(d, from, to, from + k * (to - from) / 4, &share) > even_residue ||
            fabsf(share - 0.25f * (float)k) > even_share)
            return false;
    }
    return true;
}

/* Wipes and irises: the frames between are made of parts of the two ends, more and more of the
 * second. */
static bool is_mask(const weft_shot_detector *d, int64_t from, int64_t to)
{
    const uint8_t *a = at(d, from)->f.coarse, *b = at(d, to)->f.coarse;
    float before = 0;
    for (int k = 1; k < 4; k++) {
        const uint8_t *m = at(d, from + k * (to - from) / 4)->f.coarse;
        int64_t whole = 0, left = 0, old = 0;
        for (int i = 0; i < 3 * COARSE_AREA; i++) {
            const int to_a = abs(m[i] - a[i]), to_b = abs(m[i] - b[i]), ab = abs(a[i] - b[i]);
            whole += ab;
            left += to_a < to_b ? to_a : to_b;
            old += to_b < to_a ? ab : 0;
        }
        const float share = (float)old / (float)(whole + 1);
        if ((float)left > mask_residue * (float)whole || share < before + mask_share ||
            share > 1 - mask_share)
            return false;
        before = share;
    }
    return true;
}

/* Mean steps around a span: of the LOOK frames before it, the LOOK frames after it, and inside. */
typedef struct activity {
    float before, after, inside;
    bool steady; /* no single step right before or after, other than a cut, is most of the way */
} activity;

static activity activity_of(const weft_shot_detector *d, int64_t from, int64_t to, float difference)
{
    activity a = {.steady = true};
    int before = 0, after = 0;
    for (int64_t k = 0; k < LOOKAHEAD; k++) {
        const int64_t p = from - k, q = to + 1 + k;
        if (p > 0 && p > d->count - RING && !at(d, p)->cut) {
            a.before += at(d, p)->step;
            a.steady &= at(d, p)->step < 0.5f * difference;
            before++;
        }
        if (q < d->count) {
            a.after += at(d, q)->step;
            a.steady &= at(d, q)->step < 0.5f * difference || at(d, q)->mismatch > cut_mismatch;
            after++;
        }
    }
    a.before /= (float)(before ? before : 1);
    a.after /= (float)(after ? after : 1);
    a.inside = (float)(at(d, to)->path - at(d, from)->path) / (float)(to - from);
    return a;
}

/* Log-odds that a span with different ends is a transition and not motion. A linear discriminant of
 * the features at the head of this file. It was fitted on transitions of 25 kinds and on single
 * shots with moving cameras and objects. Structure has the largest weight, then the straightness of
 * the path. */
static float evidence(float mismatch, float straight, float residue, float difference, float excess)
{
    return 12.5f * mismatch + straight - 2.5f * fminf(residue, 0.5f) + 1.45f * logf(difference) +
           0.6f * excess - 12.6f;
}

/* Mismatch of neighbours on both sides of a span, as in noise_around. */
static float noise_outside(const weft_shot_detector *d, int64_t from, int64_t to)
{
    some s = {.count = 0};
    for (int64_t p = from; p > 0 && p > d->count - RING && p > from - 8 && !at(d, p)->cut; p--)
        s.value[s.count++] = at(d, p)->mismatch;
    for (int64_t p = to + 1; p < d->count && p < to + 9 && !at(d, p)->cut; p++)
        s.value[s.count++] = at(d, p)->mismatch;
    return noisy * median(&s);
}

/* True if an end of a span is inside a flash: the content of one end returns after the other
 * end. */
static bool ends_in_flash(const weft_shot_detector *d, int64_t from, int64_t to, float mismatch)
{
    const slot *a = at(d, from), *b = at(d, to);
    const float same = fmaxf(same_image * cut_mismatch * d->factor,
                             fminf(noise_outside(d, from, to), noisy_share * mismatch));
    const float near = 0.5f * weft_shot_difference(&a->f, &b->f); /* otherwise skipped */
    for (int64_t k = 1; k <= LOOKAHEAD; k++) {
        const int64_t after = to + k, before = from - k;
        if (after < d->count && !at(d, after)->cut &&
            weft_shot_difference(&a->f, &at(d, after)->f) < near &&
            weft_shot_mismatch(&a->f, &at(d, after)->f, 8, 5) < same)
            return true;
        if (before >= 0 && before > d->count - RING && !at(d, before + 1)->cut &&
            weft_shot_difference(&at(d, before)->f, &b->f) < near &&
            weft_shot_mismatch(&at(d, before)->f, &b->f, 8, 5) < same)
            return true;
    }
    return false;
}

/* Looks at the span that ends at position `to`. */
static void try_span(weft_shot_detector *d, int64_t to, int span)
{
    int64_t from = to - span;
    if (from < 0 || at(d, to)->mixed) /* the ends of a span must be decoded frames */
        return;
    while (from > 0 && at(d, from)->mixed)
        from--;
    if (uniform(at(d, from)) || uniform(at(d, to)) || d->candidate_count == CANDIDATES)
        return;
    const slot *a = at(d, from), *b = at(d, to);
    /* A nearly uniform end is inside a fade, not next to it. */
    if (fminf(a->f.spread, b->f.spread) < 0.2f * fmaxf(a->f.spread, b->f.spread))
        return;
    const float difference = weft_shot_difference(&a->f, &b->f);
    if (difference < span_difference)
        return;
    const float straight = difference / fmaxf((float)(b->path - a->path), 1e-3f);
    const bool dips = contrast_dip(d, from, to) <= 0.35f;
    if (cut_between(d, from, to))
        return;
    const bool even =
        span >= 24 && straight < 0.33f && straight > 0.12f && !dips && is_even(d, from, to);
    const bool goes_straight = (straight >= 0.33f || even) && !dips;
    if (!goes_straight && !dips && span > 54)
        return;
    const activity act = activity_of(d, from, to, difference);
    if (!act.steady)
        return;
    const float mismatch = weft_shot_mismatch(&a->f, &b->f, 8, 5);
    if (mismatch < 0.34f)
        return;
    float score;
    if (goes_straight) {
        const float excess = logf((act.inside + 0.3f) / (fminf(act.before, act.after) + 0.3f));
        float share;
        const float residue = mixture_residue(d, from, to, (from + to) / 2, &share);
        score = evidence(mismatch, straight, residue, difference, excess);
        score += 4 * (1 - d->factor) + (even ? even_bonus : 0);
        if (score <= 0 && score > -mask_bonus && is_mask(d, from, to))
            score += mask_bonus;
    } else {
        if (mismatch < span_mismatch * d->factor)
            return;
        if (!dips && (fmaxf(act.before, act.after) > 0.35f * act.inside || !is_push(d, from, to)))
            return;
        score = (dips ? 4.5f : 1) + 4 * (mismatch - span_mismatch) + 8.0f / (float)span;
    }
    if (score <= 0 || ends_in_flash(d, from, to, mismatch))
        return;
    d->candidate[d->candidate_count++] =
        (candidate){.start = from, .end = to, .score = score, .dip = dips};
}

/* Distance of a frame from one colour; in a fade, the remaining share of the content. */
static float colour_distance(const slot *s, const int colour[3])
{
    int64_t sum = 0;
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < COARSE_AREA; i++) {
            const int v = s->f.coarse[p * COARSE_AREA + i] - colour[p];
            sum += v < 0 ? -v : v;
        }
    return (float)sum / COARSE_AREA;
}

static int median_of(const uint8_t plane[COARSE_AREA])
{
    int histogram[256] = {0}, seen = 0, median = 0;
    for (int i = 0; i < COARSE_AREA; i++)
        histogram[plane[i]]++;
    while (median < 255 && (seen += histogram[median]) * 2 < COARSE_AREA)
        median++;
    return median;
}

/* First position in `direction` from `low`, the deepest point of a fade, that is no longer dimmed:
 * the best fit of a ramp followed by a constant. At most `end`, which the frames must reach. */
static int64_t fade_edge(const weft_shot_detector *d, int64_t low, int direction, int64_t end,
                         const int colour[3])
{
    float value[FADE + LOOKAHEAD];
    int n = 0;
    for (int64_t p = low; n < FADE + LOOKAHEAD && direction * (end - p) >= 0; p += direction)
        value[n++] = colour_distance(at(d, p), colour);
    for (int k = n - 1; k >= 0; k--)
        value[k] = fmaxf(0, value[k] - value[0]);
    int best = n - 1;
    float least = 1e30f;
    for (int top = 2; top < n; top++) {
        const int after = n - top < 2 * LOOKAHEAD ? n - top : 2 * LOOKAHEAD;
        float mean = 0, over = 0;
        for (int k = top; k < top + after; k++)
            mean += value[k];
        mean /= (float)after;
        for (int k = top; k < top + after; k++)
            over += fabsf(value[k] - mean);
        const float scale = fmaxf(mean, 1) * (float)(top + after);
        for (int foot = 0; foot < top; foot++) {
            float error = over;
            for (int k = 0; k < top && error < least * scale; k++)
                error += fabsf(value[k] - mean * fmaxf(0, (float)(k - foot) / (float)(top - foot)));
            if (error < least * scale) {
                least = error / scale;
                best = top;
            }
        }
    }
    return low + direction * best;
}

/* True if only noise is visible at the deepest point of a dip. Otherwise the dip may be a pale shot
 * between two others. */
static bool nothing_left(const weft_shot_detector *d, int64_t low)
{
    const slot *s = at(d, low);
    if (uniform(s))
        return true;
    return low > 0 && low > d->count - RING + 1 && low + 1 < d->count &&
           weft_shot_difference(&at(d, low - 1)->f, &at(d, low + 1)->f) > noise_share * s->f.spread;
}

/* Narrows or widens a span to its mixed frames: by the share of the distance covered, or for a dip
 * by the distance from the colour. Positions `start` (last pure old), `end` (first pure new). */
static void refine(weft_shot_detector *d, candidate *c)
{
    const int64_t from = c->start, to = c->end;
    if (c->dip) {
        int64_t low = from;
        for (int64_t p = from; p <= to; p++)
            if (at(d, p)->f.spread < at(d, low)->f.spread)
                low = p;
        if (d->fade_low == low && d->fade_count == d->count) { /* cached from the previous span */
            c->start = d->fade_start;
            c->end = d->fade_end;
            c->fade = d->fade_deep;
            return;
        }
        int colour[3];
        for (int p = 0; p < 3; p++) /* the median: bars are of another colour */
            colour[p] = median_of(at(d, low)->f.coarse + p * COARSE_AREA);
        int64_t first = low, last = low;
        while (first > 0 && first > d->count - RING + 1 && first > low - FADE - LOOKAHEAD &&
               !at(d, first)->cut)
            first--;
        while (last + 1 < d->count && last < low + FADE + LOOKAHEAD && !at(d, last + 1)->cut)
            last++;
        c->start = d->fade_start = fade_edge(d, low, -1, first, colour);
        c->end = d->fade_end = fade_edge(d, low, 1, last, colour);
        c->fade = d->fade_deep = nothing_left(d, low);
        d->fade_low = low;
        d->fade_count = d->count;
        d->fade_mismatch = weft_shot_mismatch(&at(d, c->start)->f, &at(d, c->end)->f, 8, 5);
        d->fade_noise = noise_outside(d, c->start, c->end);
        return;
    }
    const double whole = weft_shot_difference(&at(d, from)->f, &at(d, to)->f);
    while (c->start + 2 < c->end &&
           weft_shot_difference(&at(d, from)->f, &at(d, c->start + 1)->f) < 0.07 * whole)
        c->start++;
    while (c->end - 2 > c->start &&
           weft_shot_difference(&at(d, to)->f, &at(d, c->end - 1)->f) < 0.07 * whole)
        c->end--;
}

static weft_status report(weft_shot_detector *d, const candidate *c)
{
    weft_boundary b = {.start = at(d, c->start)->index + 1,
                       .end = at(d, c->end)->index - 1,
                       .gradual = true,
                       .score = c->score};
    if (b.end < b.start)
        b.end = b.start;
    d->settled = c->end;
    return add_boundary(d, b);
}

static int by_end(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

/* True if a span begins or ends inside a fade: one end is content, the other noise. */
static bool ends_in_fade(const candidate *list, int64_t count, const candidate *c)
{
    for (int64_t i = 0; i < count && !c->dip; i++) {
        const int64_t first = list[i].start + 1, last = list[i].end - 1;
        if (list[i].fade &&
            ((c->start > first && c->start < last) || (c->end > first && c->end < last)))
            return true;
    }
    return false;
}

/* Outputs transitions when no later candidate can overlap them. Selects the set of non-overlapping
 * candidates with the largest total score, so that a span over two transitions does not hide the
 * shot between them. */
static weft_status resolve_candidates(weft_shot_detector *d, bool all)
{
    int64_t last_end = -1, first_start = d->looked;
    for (int64_t i = 0; i < d->candidate_count; i++) {
        last_end = d->candidate[i].end > last_end ? d->candidate[i].end : last_end;
        first_start = d->candidate[i].start < first_start ? d->candidate[i].start : first_start;
    }
    if (d->candidate_count == 0 ||
        (!all && d->looked - last_end < AFTER && d->looked - first_start < RING - 24 &&
         d->candidate_count < CANDIDATES))
        return WEFT_OK;
    int64_t refined = 0, count = 0;
    for (int64_t i = 0; i < d->candidate_count; i++) {
        candidate c = d->candidate[i];
        refine(d, &c);
        if (c.dip && d->fade_mismatch < fmaxf(cut_mismatch * d->factor, d->fade_noise))
            continue; /* a flash, or a covered camera: earlier content returns */
        if (c.start >= d->settled + d->gap)
            d->candidate[refined++] = c;
    }
    candidate *list = d->candidate;
    for (int64_t i = 0; i < refined; i++)
        list[i].before = ends_in_fade(list, refined, &list[i]);
    for (int64_t i = 0; i < refined; i++)
        if (!list[i].before)
            list[count++] = list[i];
    qsort(d->candidate, (size_t)count, sizeof *d->candidate, by_end);
    d->candidate_count = 0;
    int best = -1;
    for (int i = 0; i < count; i++) {
        candidate *c = &d->candidate[i];
        c->sum = c->score;
        c->before = -1;
        for (int k = 0; k < i; k++)
            if (d->candidate[k].end + d->gap <= c->start &&
                d->candidate[k].sum + c->score > c->sum) {
                c->sum = d->candidate[k].sum + c->score;
                c->before = k;
            }
        if (best < 0 || c->sum > d->candidate[best].sum)
            best = i;
    }
    int after = -1;
    for (int i = best; i >= 0;) { /* reverses the chain */
        const int before = d->candidate[i].before;
        d->candidate[i].before = after;
        after = i;
        i = before;
    }
    for (int i = after; i >= 0; i = d->candidate[i].before)
        WEFT_TRY(report(d, &d->candidate[i]));
    return WEFT_OK;
}

/* Tries the spans whose surroundings are known. */
static weft_status check_spans(weft_shot_detector *d, bool all)
{
    for (; d->looked < d->count && (all || d->looked + LOOKAHEAD < d->count); d->looked++) {
        if (at(d, d->looked)->cut) /* no span crosses a cut */
            WEFT_TRY(resolve_candidates(d, true));
        for (int k = 0; k < SPANS; k++)
            try_span(d, d->looked, span_of[k]);
        WEFT_TRY(resolve_candidates(d, false));
    }
    return WEFT_OK;
}

/* Passes a decided frame to the ring, where spans are searched. The ring skips flashes. */
static weft_status pass_on(weft_shot_detector *d, const slot *s)
{
    if (s->cut)
        d->since = 0;
    if (d->since++ % d->stride != 0)
        return WEFT_OK;
    if (s->transient) {
        d->left_out = true;
        return WEFT_OK;
    }
    slot *to = at(d, d->count);
    *to = *s;
    to->path = 0;
    if (d->count > 0) {
        const slot *before = at(d, d->count - 1);
        if (d->stride > 1 || d->left_out)
            to->step = weft_shot_difference(&before->f, &to->f);
        if (d->left_out)
            to->mismatch = weft_shot_mismatch(&before->f, &to->f, 6, 4);
        d->left_out = false;
        to->path = before->path + to->step * (to->mixed || before->mixed ? mixed_path : 1);
    }
    d->count++;
    return check_spans(d, false);
}

static weft_status decide_cuts(weft_shot_detector *d, bool all)
{
    for (; d->decided < d->fine_count && (all || d->decided + LOOKAHEAD < d->fine_count);
         d->decided++) {
        WEFT_TRY(decide_cut(d, d->decided));
        WEFT_TRY(pass_on(d, fine_at(d, d->decided)));
    }
    return WEFT_OK;
}

weft_status weft_shot_detector_push(weft_shot_detector *d, const weft_video_frame *frame)
{
    if (frame->width != SHOT_W || frame->height != SHOT_H || !frame->plane[2])
        return weft_error(WEFT_MSG_VIDEO_FRAMES, WEFT_NOWHERE,
                          "the shot detector needs frames of %d x %d, not %" PRId64 " x %" PRId64,
                          SHOT_W, SHOT_H, frame->width, frame->height);
    const int64_t number = d->frames++;
    if (d->classic)
        return weft_classic_shots_push(d->classic, frame);
    if (d->network)
        return weft_network_shots_push(d->network, frame);
    slot *s = fine_at(d, d->fine_count);
    weft_shot_frame_fill(&s->f, frame);
    s->index = number;
    s->cut = false;
    s->mixed = frame->mixed;
    s->transient = false;
    s->mismatch = s->step = 0;
    d->uniform_run = uniform(s) ? d->uniform_run + 1 : 0;
    if (d->uniform_run > HOLD * d->stride)
        return WEFT_OK; /* the window spans the black, whatever its length */
    if (d->fine_count > 0) {
        const slot *before = fine_at(d, d->fine_count - 1);
        s->step = weft_shot_difference(&before->f, &s->f);
        if (s->step >= 0.75f)
            s->mismatch = weft_shot_mismatch(&before->f, &s->f, 6, 4);
    }
    d->fine_count++;
    return decide_cuts(d, false);
}

weft_status weft_shot_detector_finish(weft_shot_detector *d)
{
    if (d->classic)
        return weft_classic_shots_finish(d->classic, &d->boundary, &d->boundary_count);
    if (d->network)
        return weft_network_shots_finish(d->network, &d->boundary, &d->boundary_count);
    WEFT_TRY(decide_cuts(d, true));
    WEFT_TRY(check_spans(d, true));
    return resolve_candidates(d, true);
}

bool weft_shot_alike(const void *shot_options, const weft_video_frame *before,
                     const weft_video_frame *after)
{
    const weft_shot_options *o = shot_options;
    if (o->mix <= 0 || o->method != WEFT_SHOTS_STRUCTURE)
        return false;
    weft_shot_frame a = {0}, b = {0}; /* the integrals begin with zeros */
    weft_shot_frame_fill(&a, before);
    weft_shot_frame_fill(&b, after);
    return weft_shot_difference(&a, &b) < (float)o->mix &&
           weft_shot_mismatch(&a, &b, 6, 4) < alike_mismatch * cut_mismatch * factor_of(o);
}

const weft_boundary *weft_shot_detector_boundaries(const weft_shot_detector *d, int64_t *count)
{
    *count = d->boundary_count;
    return d->boundary;
}

/* Shot boundaries in one pass with a bounded window of small frames.
 *
 * Hard cuts: consecutive frames whose structure does not match even after motion compensation and a
 * change of light, unless the picture from before comes back within a few frames (a flash, an
 * occlusion).
 *
 * Gradual transitions: two frames up to 110 frames (of 30 a second) apart whose structure differs
 * as much as across a cut, though no cut lies between, and a reason other than motion for it:
 *   - a straight path: what changes goes from the old to the new value without detours, so that the
 *     sum of the steps is not much longer than the whole way. It holds for dissolves and for every
 *     kind of mask (wipes, irises, pixel dissolves), and not for moving pictures;
 *   - an even path: at each quarter of the span a quarter of the way is behind (long dissolves of
 *     moving pictures, whose path is not straight);
 *   - a dip: between them the picture loses its contrast (fades through a colour, blurs). Its ends
 *     are where the ramp of the frames' distance from that colour goes over into a level;
 *   - a push: the frames between are the two pictures, shifted, side by side. */
#include "curate/shots.h"

#include "base/memory.h"
#include "curate/shots_classic.h"
#include "curate/shots_match.h"
#include "curate/shots_network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING = 256, /* frames that are kept for spans; more than twice the longest */
    FINE = 32,  /* frames that are kept for cuts */
    /* frames that a flash may last, and the delay of the decision about a cut */
    LOOK = WEFT_SHOT_LEAVE_OUT,
    HOLD = 8, /* frames of a uniform run that are kept */
    SPANS = 8,
    CANDIDATES = 512,
    GAP = 12,   /* frames between two gradual transitions, at least */
    AFTER = 40, /* frames behind a transition that are seen before it is settled */
    FADE = 90,  /* frames of a fade to its colour, at most */
};
static const int span_of[SPANS] = {6, 10, 16, 24, 36, 54, 80, 110};
/* Spans are made of so many frames a second, so that they are long enough in time. */
static const double span_rate = 30;

/* Thresholds; options.threshold scales the first two. */
static const float cut_mismatch = 0.34f, span_mismatch = 0.385f;
/* Parts of cut_mismatch: below the first two frames show the same picture; below the second what
 * lies between may be mixed of them. */
static const float same_picture = 0.6f, alike_mismatch = 0.4f;
/* In noise frames of one shot match so much worse than neighbours, and so much better than frames
 * of two. */
static const float noisy = 1.35f, noisy_share = 0.6f;
/* What noise leaves of a fade differs from frame to frame by this share of its contrast. */
static const float noise_share = 0.4f;
/* How much longer the way of what moves is than that of its mixture: 1.3 to 1.5 in footage, 1.05 in
 * dissolves. */
static const float mixed_way = 1.5f;
static const float even_residue = 0.25f, even_share = 0.15f, even_bonus = 1.5f;
static const float mask_residue = 0.22f, mask_share = 0.06f, mask_bonus = 2.0f;
static const float uniform_spread = 2.0f, least_difference = 6, span_difference = 35;

typedef struct slot {
    weft_shot_frame f;
    int64_t index;  /* frame number in the video */
    double path;    /* of spans: sum of step differences up to here; restarts nowhere */
    float mismatch; /* to the frame before */
    float step;     /* difference to the frame before */
    bool cut;       /* a new shot begins here */
    bool mixed;     /* not decoded */
    bool passing;   /* of a flash or something that passed by: what was before comes back */
} slot;

typedef struct candidate {
    int64_t start, end; /* positions: last old and first new frame */
    float score;
    bool dip;
    bool fade; /* a dip to nothing but noise */
    /* Of the choice among them: the best sum up to this one, and which comes before it. */
    float sum;
    int before;
} candidate;

struct weft_shot_detector {
    weft_shot_options options;
    float factor;
    slot *fine;          /* of every frame, for cuts */
    int64_t fine_count;  /* positions pushed; position p lies in fine[p % FINE] */
    int64_t frames;      /* frames of the video */
    int64_t uniform_run; /* length of the current run of uniform frames */
    int64_t decided;     /* cuts are decided for fine positions below this */
    int64_t last_cut;    /* frame; -1: none */
    slot *ring;          /* of every `stride`-th frame since the last cut, for spans */
    int64_t stride, since;
    bool left_out;  /* a flash between the last frame of the ring and the next */
    int64_t count;  /* as fine_count */
    int64_t looked; /* spans that end below this were tried */
    int64_t gap;
    int64_t settled; /* position up to which transitions were told */
    /* The fade that was measured last. */
    int64_t fade_low, fade_count, fade_start, fade_end;
    bool fade_deep;
    float fade_mismatch; /* of its two ends */
    float fade_noise;    /* of frames of one shot around it */
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
    weft_shot_detector *d = weft_alloc(sizeof *d);
    if (!d)
        return weft_fail(WEFT_E_MEMORY, "shot detector: out of memory");
    if (options)
        d->options = *options;
    if (d->options.method < 0 || d->options.method >= WEFT_SHOTS_METHODS ||
        !(d->options.threshold >= 0) || d->options.min_frames < 0 || !(d->options.mix >= 0) ||
        !(d->options.fps >= 0)) {
        weft_free(d);
        return weft_fail(
            WEFT_E_ARG,
            "shot detector: method, threshold, shortest shot, mix or rate is outside its "
            "range");
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
        d->fine = weft_alloc(FINE * (int64_t)sizeof *d->fine);
        d->ring = weft_alloc(RING * (int64_t)sizeof *d->ring);
        d->candidate = weft_alloc(CANDIDATES * (int64_t)sizeof *d->candidate);
        if (!d->fine || !d->ring || !d->candidate) {
            weft_shot_detector_free(d);
            return weft_fail(WEFT_E_MEMORY, "shot detector: out of memory");
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

/* Whether the contrast goes up or down evenly over the frames from `first` on one side of a step
 * (way +1: the step leads to `first`; -1: from it), and the step is one of these: part of a fade,
 * of which coding leaves little structure. */
static bool is_ramp(const weft_shot_detector *d, int64_t first, int way)
{
    enum { RAMP = 4 };
    const int64_t last = first + way * RAMP, other = first - way;
    if (last < 0 || last <= d->fine_count - FINE || last >= d->fine_count)
        return false;
    const float whole = fine_at(d, last)->f.spread - fine_at(d, first)->f.spread;
    const float step = fine_at(d, first)->f.spread - fine_at(d, other)->f.spread;
    float high = 0;
    for (int64_t p = first; p != last; p += way) {
        if ((fine_at(d, p + way)->f.spread - fine_at(d, p)->f.spread) / whole < -0.1f)
            return false;
        high = fmaxf(high, fine_at(d, p)->f.spread);
    }
    high = fmaxf(high, fine_at(d, last)->f.spread);
    const float share = step * RAMP / whole;
    return fabsf(whole) > 0.2f * high && share > -0.3f && share < 1.8f;
}

/* The median of up to COUNT values. */
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

/* How much neighbours around a position do not match, of noise or water: two frames of one shot
 * match no better. */
static float noise_around(const weft_shot_detector *d, int64_t position)
{
    some s = {.count = 0};
    for (int64_t p = position - 1; p > 0 && p > position - 13 && !fine_at(d, p)->cut; p--)
        s.value[s.count++] = fine_at(d, p)->mismatch;
    for (int64_t p = position + 1; p < d->fine_count && p <= position + LOOK; p++)
        s.value[s.count++] = fine_at(d, p)->mismatch;
    return median(&s);
}

/* Whether two frames show one picture, so that `between` is a flash or something that passed by:
 * they match better than `same`. Where light has taken the contrast of what is between, it says
 * nothing of its own, and they need only match better than across a cut. */
static bool is_same(const slot *a, const slot *between, const slot *b, float same, float cut)
{
    const bool pale = between->f.spread < 0.6f * fminf(a->f.spread, b->f.spread);
    return weft_shot_mismatch(&a->f, &b->f, 6, 4) < (pale ? cut : same);
}

/* Whether the frame at `position` begins a shot; the frames up to position + LOOK are there, or
 * the video ends. */
static bool is_cut(const weft_shot_detector *d, int64_t position)
{
    const slot *now = fine_at(d, position), *before = fine_at(d, position - 1);
    const float threshold = cut_mismatch * d->factor;
    if (now->mismatch < threshold || now->step < least_difference || uniform(now) ||
        uniform(before))
        return false;
    /* In the depth of a fade both sides have lost their contrast to their own neighbours. */
    float high_before = 0, high_after = 0;
    for (int64_t k = 0; k <= LOOK; k++) {
        if (position - 1 - k >= 0)
            high_before = fmaxf(high_before, fine_at(d, position - 1 - k)->f.spread);
        if (position + k < d->fine_count)
            high_after = fmaxf(high_after, fine_at(d, position + k)->f.spread);
    }
    if (before->f.spread < 0.6f * high_before && now->f.spread < 0.6f * high_after)
        return false;
    if (is_ramp(d, position, 1) || is_ramp(d, position - 1, -1))
        return false;
    /* Material that never matches (noise, water) must stand out of itself. */
    float usual = 0;
    int n = 0;
    for (int64_t p = position - 1; p > 0 && p > position - 13 && !fine_at(d, p)->cut; p--, n++)
        usual += fine_at(d, p)->mismatch;
    if (n >= 4 && now->mismatch < 1.6f * usual / (float)n)
        return false;
    const float noise = fminf(noisy * noise_around(d, position), noisy_share * now->mismatch);
    const float same = fmaxf(same_picture * threshold, noise);
    for (int64_t k = 1; k <= LOOK; k++) {
        if (position + k < d->fine_count && !uniform(fine_at(d, position + k)) &&
            is_same(before, now, fine_at(d, position + k), same, threshold))
            return false; /* what was before comes back */
        const int64_t p = position - 1 - k;
        if (p < 0 || p <= d->fine_count - FINE || fine_at(d, p + 1)->cut)
            break;
        if (is_same(fine_at(d, p), before, now, same, threshold))
            return false; /* it has come back */
    }
    return true;
}

/* Marks a flash that begins at `position`, after which the picture of before comes back. */
static void mark_passing(weft_shot_detector *d, int64_t position)
{
    const slot *now = fine_at(d, position), *before = fine_at(d, position - 1);
    const float threshold = cut_mismatch * d->factor;
    if (now->passing || uniform(before) || now->step < 2 * least_difference)
        return;
    const float same = fmaxf(same_picture * threshold,
                             fminf(noisy * noise_around(d, position), noisy_share * now->mismatch));
    for (int64_t k = 1; k <= LOOK && position + k < d->fine_count; k++) {
        const slot *after = fine_at(d, position + k);
        if (uniform(after) || weft_shot_difference(&before->f, &after->f) > 0.4f * now->step ||
            !is_same(before, now, after, same, threshold))
            continue;
        for (int64_t p = position; p < position + k; p++)
            fine_at(d, p)->passing = true;
        return;
    }
}

/* Decides about one frame. */
static weft_status decide_cut(weft_shot_detector *d, int64_t p)
{
    if (p == 0)
        return WEFT_OK;
    if (!is_cut(d, p)) {
        mark_passing(d, p);
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

/* Mean absolute difference between a frame and the composition of two frames along one axis: the
 * part of `now` before `edge` shows `first` shifted so that its end meets the edge, the rest shows
 * `second` from its beginning. */
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

/* Whether the frames between are a push from one picture to the other: at three times the best
 * composition explains the frame far better than either picture, and its edge moves on. */
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
                /* forward: the new picture comes from the top or left */
                const float e = forward ? push_error(now, new, old, vertical, edge)
                                        : push_error(now, old, new, vertical, edge);
                if (e < best)
                    best = e, best_edge = edge;
            }
            const int covered = forward ? best_edge : length - best_edge;
            if (covered < length / 6 || covered > length - length / 6)
                continue; /* little to tell by */
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

/* Where the frame at `p` lies between the two ends: the share of the way that is behind, and the
 * part of its own way that is not along the straight line between them, relative to its length
 * (squared). 0: it is a mixture of the ends. */
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

/* Long dissolves of moving pictures are not straight, but they go on evenly: at each quarter of the
 * span a quarter of the way is behind. What a camera does leaves the first picture at once. */
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

/* Mean steps around a span: the LOOK frames before it, those after it, and inside. */
typedef struct activity {
    float before, after, inside;
    bool steady; /* no single step right before or after, other than a cut, is most of the way */
} activity;

static activity activity_of(const weft_shot_detector *d, int64_t from, int64_t to, float difference)
{
    activity a = {.steady = true};
    int before = 0, after = 0;
    for (int64_t k = 0; k < LOOK; k++) {
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

/* Log-odds that a span whose ends differ is a transition and not motion. A linear discriminant of
 * what the head of this file names, fitted on transitions of 25 kinds against single shots with
 * moving cameras and objects; of a whole: structure weighs most, then how straight the path is. */
static float evidence(float mismatch, float straight, float residue, float difference, float excess)
{
    return 12.5f * mismatch + straight - 2.5f * fminf(residue, 0.5f) + 1.45f * logf(difference) +
           0.6f * excess - 12.6f;
}

/* How much neighbours on both sides of a span do not match, as noise_around. */
static float noise_beside(const weft_shot_detector *d, int64_t from, int64_t to)
{
    some s = {.count = 0};
    for (int64_t p = from; p > 0 && p > d->count - RING && p > from - 8 && !at(d, p)->cut; p--)
        s.value[s.count++] = at(d, p)->mismatch;
    for (int64_t p = to + 1; p < d->count && p < to + 9 && !at(d, p)->cut; p++)
        s.value[s.count++] = at(d, p)->mismatch;
    return noisy * median(&s);
}

/* Whether an end of a span whose ends do not match is amid a flash: the picture of one end comes
 * back behind the other. */
static bool ends_in_flash(const weft_shot_detector *d, int64_t from, int64_t to, float mismatch)
{
    const slot *a = at(d, from), *b = at(d, to);
    const float same = fmaxf(same_picture * cut_mismatch * d->factor,
                             fminf(noise_beside(d, from, to), noisy_share * mismatch));
    const float near = 0.5f * weft_shot_difference(&a->f, &b->f); /* else it is not looked at */
    for (int64_t k = 1; k <= LOOK; k++) {
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
    if (from < 0 || at(d, to)->mixed) /* the ends of a span are pictures that were there */
        return;
    while (from > 0 && at(d, from)->mixed)
        from--;
    if (uniform(at(d, from)) || uniform(at(d, to)) || d->candidate_count == CANDIDATES)
        return;
    const slot *a = at(d, from), *b = at(d, to);
    /* An end that is nearly uniform is inside a fade, not beside it. */
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

/* How far a frame is from one colour: in a fade it is the share of the picture that is left. */
static float away(const slot *s, const int colour[3])
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

/* Of a fade that is deepest at `low` the first position in direction `way` that is not dimmed any
 * more: where a ramp that goes over into a level fits best. At most until `end`, which the frames
 * must reach. */
static int64_t fade_edge(const weft_shot_detector *d, int64_t low, int way, int64_t end,
                         const int colour[3])
{
    float value[FADE + LOOK];
    int n = 0;
    for (int64_t p = low; n < FADE + LOOK && way * (end - p) >= 0; p += way)
        value[n++] = away(at(d, p), colour);
    for (int k = n - 1; k >= 0; k--)
        value[k] = fmaxf(0, value[k] - value[0]);
    int best = n - 1;
    float least = 1e30f;
    for (int top = 2; top < n; top++) {
        const int behind = n - top < 2 * LOOK ? n - top : 2 * LOOK;
        float level = 0, over = 0;
        for (int k = top; k < top + behind; k++)
            level += value[k];
        level /= (float)behind;
        for (int k = top; k < top + behind; k++)
            over += fabsf(value[k] - level);
        const float scale = fmaxf(level, 1) * (float)(top + behind);
        for (int foot = 0; foot < top; foot++) {
            float error = over;
            for (int k = 0; k < top && error < least * scale; k++)
                error +=
                    fabsf(value[k] - level * fmaxf(0, (float)(k - foot) / (float)(top - foot)));
            if (error < least * scale) {
                least = error / scale;
                best = top;
            }
        }
    }
    return low + way * best;
}

/* Whether nothing is seen where a dip is deepest, or nothing but noise: other pictures may be a
 * pale shot between two others. */
static bool nothing_left(const weft_shot_detector *d, int64_t low)
{
    const slot *s = at(d, low);
    if (uniform(s))
        return true;
    return low > 0 && low > d->count - RING + 1 && low + 1 < d->count &&
           weft_shot_difference(&at(d, low - 1)->f, &at(d, low + 1)->f) > noise_share * s->f.spread;
}

/* Narrows or widens a span to its mixed frames: by the share of the way that is behind, or for a
 * dip by how far the colour is away. Positions `start` (last pure old), `end` (first pure new). */
static void refine(weft_shot_detector *d, candidate *c)
{
    const int64_t from = c->start, to = c->end;
    if (c->dip) {
        int64_t low = from;
        for (int64_t p = from; p <= to; p++)
            if (at(d, p)->f.spread < at(d, low)->f.spread)
                low = p;
        if (d->fade_low == low && d->fade_count == d->count) { /* as of the span before */
            c->start = d->fade_start;
            c->end = d->fade_end;
            c->fade = d->fade_deep;
            return;
        }
        int colour[3];
        for (int p = 0; p < 3; p++) /* the median: bars are of another colour */
            colour[p] = median_of(at(d, low)->f.coarse + p * COARSE_AREA);
        int64_t first = low, last = low;
        while (first > 0 && first > d->count - RING + 1 && first > low - FADE - LOOK &&
               !at(d, first)->cut)
            first--;
        while (last + 1 < d->count && last < low + FADE + LOOK && !at(d, last + 1)->cut)
            last++;
        c->start = d->fade_start = fade_edge(d, low, -1, first, colour);
        c->end = d->fade_end = fade_edge(d, low, 1, last, colour);
        c->fade = d->fade_deep = nothing_left(d, low);
        d->fade_low = low;
        d->fade_count = d->count;
        d->fade_mismatch = weft_shot_mismatch(&at(d, c->start)->f, &at(d, c->end)->f, 8, 5);
        d->fade_noise = noise_beside(d, c->start, c->end);
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

static weft_status tell(weft_shot_detector *d, const candidate *c)
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

/* Whether a span begins or ends amid a fade: what it holds against each other is a picture and what
 * noise left of it. */
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

/* Tells the transitions of the candidates once nothing that may still come can overlap them. Of all
 * sets whose members lie apart it is the one of the greatest sum of scores, so that a span over two
 * transitions does not swallow the shot between them. */
static weft_status settle(weft_shot_detector *d, bool all)
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
            continue; /* a flash, or a camera that was covered: what was before comes back */
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
    for (int i = best; i >= 0;) { /* turns the chain around */
        const int before = d->candidate[i].before;
        d->candidate[i].before = after;
        after = i;
        i = before;
    }
    for (int i = after; i >= 0; i = d->candidate[i].before)
        WEFT_TRY(tell(d, &d->candidate[i]));
    return WEFT_OK;
}

/* Tries the spans whose surroundings are known. */
static weft_status look_back(weft_shot_detector *d, bool all)
{
    for (; d->looked < d->count && (all || d->looked + LOOK < d->count); d->looked++) {
        if (at(d, d->looked)->cut) /* nothing spans a cut */
            WEFT_TRY(settle(d, true));
        for (int k = 0; k < SPANS; k++)
            try_span(d, d->looked, span_of[k]);
        WEFT_TRY(settle(d, false));
    }
    return WEFT_OK;
}

/* Hands a decided frame on to where spans are looked for. Flashes are left out there. */
static weft_status pass_on(weft_shot_detector *d, const slot *s)
{
    if (s->cut)
        d->since = 0;
    if (d->since++ % d->stride != 0)
        return WEFT_OK;
    if (s->passing) {
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
        to->path = before->path + to->step * (to->mixed || before->mixed ? mixed_way : 1);
    }
    d->count++;
    return look_back(d, false);
}

static weft_status decide_cuts(weft_shot_detector *d, bool all)
{
    for (; d->decided < d->fine_count && (all || d->decided + LOOK < d->fine_count); d->decided++) {
        WEFT_TRY(decide_cut(d, d->decided));
        WEFT_TRY(pass_on(d, fine_at(d, d->decided)));
    }
    return WEFT_OK;
}

weft_status weft_shot_detector_push(weft_shot_detector *d, const weft_video_frame *frame)
{
    if (frame->width != SHOT_W || frame->height != SHOT_H || !frame->plane[2])
        return weft_fail(WEFT_E_SHAPE,
                         "shot detector: a frame of %lld x %lld; wants small frames of %d x %d",
                         (long long)frame->width, (long long)frame->height, SHOT_W, SHOT_H);
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
    s->passing = false;
    s->mismatch = s->step = 0;
    d->uniform_run = uniform(s) ? d->uniform_run + 1 : 0;
    if (d->uniform_run > HOLD * d->stride)
        return WEFT_OK; /* however long the black lasts, the window sees both sides of it */
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
    WEFT_TRY(look_back(d, true));
    return settle(d, true);
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

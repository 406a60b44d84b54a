/* Shot boundaries in one pass with a bounded window of small frames.
 *
 * Hard cuts: consecutive frames whose structure does not match even after motion compensation and a
 * change of light, unless the picture from before comes back within a few frames (a flash, an
 * occlusion).
 *
 * Gradual transitions: two frames up to 80 frames apart whose structure differs as much as across a
 * cut, though no cut lies between, and a reason other than motion for it:
 *   - a straight path: what changes goes from the old to the new value without detours, so that the
 *     sum of the steps is not much longer than the whole way. It holds for dissolves and for every
 *     kind of mask (wipes, irises, pixel dissolves), and not for moving pictures;
 *   - a dip: between them the picture loses its contrast (fades through a colour, blurs);
 *   - a push: the frames between are the two pictures, shifted, side by side. */
#include "curate/shots.h"

#include "base/memory.h"
#include "curate/shots_classic.h"
#include "curate/shots_match.h"

#include <math.h>
#include <string.h>

enum {
    RING = 256,                 /* frames that are kept; more than twice the longest span */
    LOOK = WEFT_SHOT_LEAVE_OUT, /* frames that a flash may last, and the delay of the decision about
                                   a cut */
    HOLD = 8,                   /* frames of a uniform run that are kept */
    SPANS = 7,
    CANDIDATES = 512,
    GAP = 12, /* frames between two gradual transitions, at least */
};
static const int span_of[SPANS] = {6, 10, 16, 24, 36, 54, 80};

/* Thresholds; options.threshold scales the first two. */
static const float cut_mismatch = 0.34f, span_mismatch = 0.385f;
/* Parts of cut_mismatch: below the first two frames show the same picture; below the second what
 * lies between may be mixed of them. */
static const float same_picture = 0.6f, alike_mismatch = 0.4f;
/* How much longer the way of what moves is than that of its mixture: 1.3 to 1.5 in footage, 1.05 in
 * dissolves. */
static const float mixed_way = 1.5f;
static const float uniform_spread = 2.0f, least_difference = 6, span_difference = 35;

typedef struct slot {
    weft_shot_frame f;
    int64_t index;  /* frame number in the video */
    double path;    /* sum of step differences up to here; restarts nowhere */
    float mismatch; /* to the frame before */
    float step;     /* difference to the frame before */
    bool cut;       /* a new shot begins here */
    bool mixed;     /* not decoded */
} slot;

typedef struct candidate {
    int64_t start, end; /* positions: last old and first new frame */
    float score;
    bool dip;
} candidate;

struct weft_shot_detector {
    weft_shot_options options;
    float factor;
    slot *ring;
    int64_t count;       /* positions pushed; position p lies in ring[p % RING] */
    int64_t frames;      /* frames of the video */
    int64_t uniform_run; /* length of the current run of uniform frames */
    int64_t decided;     /* cuts are decided for positions below this */
    candidate *candidate;
    int64_t candidate_count;
    weft_boundary *boundary;
    int64_t boundary_count, boundary_capacity;
    weft_classic_shots *classic; /* the named methods */
};

static float factor_of(const weft_shot_options *o)
{
    return o->threshold > 0 ? (float)o->threshold : 1;
}

static slot *at(const weft_shot_detector *d, int64_t position)
{
    return &d->ring[position % RING];
}

weft_status weft_shot_detector_create(const weft_shot_options *options, weft_shot_detector **out)
{
    weft_shot_detector *d = weft_alloc(sizeof *d);
    if (!d)
        return weft_fail(WEFT_E_MEMORY, "shot detector: out of memory");
    if (options)
        d->options = *options;
    if (d->options.method < 0 || d->options.method >= WEFT_SHOTS_METHODS ||
        !(d->options.threshold >= 0) || d->options.min_frames < 0 || !(d->options.mix >= 0)) {
        weft_free(d);
        return weft_fail(WEFT_E_ARG,
                         "shot detector: method, threshold, shortest shot or mix is outside its "
                         "range");
    }
    if (d->options.method != WEFT_SHOTS_STRUCTURE) {
        weft_status_code status = weft_classic_shots_create(&d->options, &d->classic);
        if (status != WEFT_OK) {
            weft_free(d);
            return status;
        }
    } else {
        d->factor = factor_of(&d->options);
        if (d->options.min_frames == 0)
            d->options.min_frames = 4;
        d->ring = weft_alloc(RING * (int64_t)sizeof *d->ring);
        d->candidate = weft_alloc(CANDIDATES * (int64_t)sizeof *d->candidate);
        if (!d->ring || !d->candidate) {
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

/* Whether the frame at `position` begins a shot; the frames up to position + LOOK are there, or
 * the video ends. */
static bool is_cut(const weft_shot_detector *d, int64_t position)
{
    const slot *now = at(d, position), *before = at(d, position - 1);
    const float threshold = cut_mismatch * d->factor;
    if (now->mismatch < threshold || now->step < least_difference || uniform(now) ||
        uniform(before))
        return false;
    /* In the depth of a fade both sides have lost their contrast to their own neighbours. */
    float high_before = 0, high_after = 0;
    for (int64_t k = 0; k <= LOOK; k++) {
        if (position - 1 - k >= 0)
            high_before = fmaxf(high_before, at(d, position - 1 - k)->f.spread);
        if (position + k < d->count)
            high_after = fmaxf(high_after, at(d, position + k)->f.spread);
    }
    if (before->f.spread < 0.6f * high_before && now->f.spread < 0.6f * high_after)
        return false;
    /* Material that never matches (noise, water) must stand out of itself. */
    float usual = 0;
    int n = 0;
    for (int64_t p = position - 1; p > 0 && p > position - 13 && !at(d, p)->cut; p--, n++)
        usual += at(d, p)->mismatch;
    if (n >= 4 && now->mismatch < 1.6f * usual / (float)n)
        return false;
    for (int64_t k = 1; k <= LOOK; k++) {
        if (position + k < d->count && !uniform(at(d, position + k)) &&
            weft_shot_mismatch(&before->f, &at(d, position + k)->f, 6, 4) <
                same_picture * threshold)
            return false; /* what was before comes back */
        const int64_t p = position - 1 - k;
        if (p < 0 || p <= d->count - RING || at(d, p + 1)->cut)
            break;
        if (weft_shot_mismatch(&at(d, p)->f, &now->f, 6, 4) < same_picture * threshold)
            return false; /* it has come back */
    }
    return true;
}

static weft_status decide_cuts(weft_shot_detector *d, bool all)
{
    for (; d->decided < d->count && (all || d->decided + LOOK < d->count); d->decided++) {
        const int64_t p = d->decided;
        if (p == 0 || !is_cut(d, p))
            continue;
        const weft_boundary *last = d->boundary_count ? &d->boundary[d->boundary_count - 1] : NULL;
        bool near = false;
        for (int64_t q = p - 1; q > 0 && q > p - d->options.min_frames; q--)
            near |= at(d, q)->cut;
        if (near ||
            (last && !last->gradual && at(d, p)->index - last->start < d->options.min_frames))
            continue; /* a flash over the first frames of the new shot */
        at(d, p)->cut = true;
        WEFT_TRY(add_boundary(d, (weft_boundary){.start = at(d, p)->index,
                                                 .end = at(d, p)->index,
                                                 .score = at(d, p)->mismatch / cut_mismatch}));
    }
    return WEFT_OK;
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

/* How badly the middle is a mixture of the two ends: the part of the way that is not along the
 * straight line between them, relative to its length (squared). 0: exactly on it. */
static float mixture_residue(const weft_shot_detector *d, int64_t from, int64_t to)
{
    const uint8_t *a = at(d, from)->f.coarse, *b = at(d, to)->f.coarse;
    const uint8_t *m = at(d, (from + to) / 2)->f.coarse;
    double dd = 0, cd = 0, cc = 0;
    for (int i = 0; i < 3 * COARSE_AREA; i++) {
        const double v = b[i] - a[i], c = m[i] - a[i];
        dd += v * v;
        cd += c * v;
        cc += c * c;
    }
    return dd > 0 ? (float)((cc - cd * cd / dd) / dd) : 1;
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
 * moving cameras and objects; of a whole: structure weighs most, then the straightness of the path.
 */
static float evidence(float mismatch, float straight, float residue, float difference, float excess)
{
    return 12.5f * mismatch + straight - 2.5f * fminf(residue, 0.5f) + 1.45f * logf(difference) +
           0.6f * excess - 12.6f;
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
    const bool goes_straight = straight >= 0.33f && !dips;
    if ((!goes_straight && !dips && span > 54) || cut_between(d, from, to))
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
        score = evidence(mismatch, straight, mixture_residue(d, from, to), difference, excess);
        score += 4 * (1 - d->factor);
    } else {
        if (mismatch < span_mismatch * d->factor)
            return;
        if (!dips && (fmaxf(act.before, act.after) > 0.35f * act.inside || !is_push(d, from, to)))
            return;
        score = 1 + 4 * (mismatch - span_mismatch) + 8.0f / (float)span;
    }
    if (score <= 0)
        return;
    d->candidate[d->candidate_count++] =
        (candidate){.start = from, .end = to, .score = score, .dip = dips};
}

/* Narrows a span to its mixed frames: by the share of the way that is behind, or for a dip by the
 * contrast. Positions `start` (last pure old) and `end` (first pure new). */
static void refine(const weft_shot_detector *d, candidate *c)
{
    const int64_t from = c->start, to = c->end;
    if (c->dip) {
        int64_t low = from;
        for (int64_t p = from; p <= to; p++)
            if (at(d, p)->f.spread < at(d, low)->f.spread)
                low = p;
        while (c->start < low && at(d, c->start + 1)->f.spread > 0.93f * at(d, from)->f.spread)
            c->start++;
        while (c->end > low && at(d, c->end - 1)->f.spread > 0.93f * at(d, to)->f.spread)
            c->end--;
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

/* Emits the best of each group of overlapping candidates, once nothing that may still come can
 * overlap: everything that ends before `limit`. */
static weft_status settle(weft_shot_detector *d, int64_t limit)
{
    int64_t last_end = -1, first_start = limit;
    for (int64_t i = 0; i < d->candidate_count; i++) {
        last_end = d->candidate[i].end > last_end ? d->candidate[i].end : last_end;
        first_start = d->candidate[i].start < first_start ? d->candidate[i].start : first_start;
    }
    /* Wait while a longer span could still cover these, as long as the ring holds them. */
    if (d->candidate_count == 0 || (limit - last_end < 24 && limit - first_start < RING - 24 &&
                                    d->candidate_count < CANDIDATES))
        return WEFT_OK;
    while (d->candidate_count > 0) {
        int64_t best = 0;
        for (int64_t i = 1; i < d->candidate_count; i++)
            if (d->candidate[i].score > d->candidate[best].score)
                best = i;
        candidate c = d->candidate[best];
        refine(d, &c);
        const weft_boundary b = {.start = at(d, c.start)->index + 1,
                                 .end = at(d, c.end)->index - 1,
                                 .gradual = true,
                                 .score = c.score};
        WEFT_TRY(add_boundary(
            d, b.end >= b.start
                   ? b
                   : (weft_boundary){.start = b.start, .end = b.start, .score = c.score}));
        /* Whose mixed frames overlap these, or lie closer than a shot can be short, is the same
         * transition. */
        int64_t kept = 0;
        for (int64_t i = 0; i < d->candidate_count; i++) {
            candidate other = d->candidate[i];
            refine(d, &other);
            if (i != best && (other.end + GAP <= c.start || other.start >= c.end + GAP))
                d->candidate[kept++] = d->candidate[i];
        }
        d->candidate_count = kept;
    }
    return WEFT_OK;
}

static weft_status look_back(weft_shot_detector *d, int64_t from, int64_t to)
{
    for (int64_t p = from; p < to; p++) {
        for (int k = 0; k < SPANS; k++)
            try_span(d, p, span_of[k]);
        if (at(d, p)->cut) /* nothing spans a cut */
            WEFT_TRY(settle(d, p + RING));
        else
            WEFT_TRY(settle(d, p));
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
    slot *s = at(d, d->count);
    weft_shot_frame_fill(&s->f, frame);
    s->index = number;
    s->cut = false;
    s->mixed = frame->mixed;
    s->mismatch = s->step = 0;
    s->path = 0;
    d->uniform_run = uniform(s) ? d->uniform_run + 1 : 0;
    if (d->uniform_run > HOLD)
        return WEFT_OK; /* however long the black lasts, the window sees both sides of it */
    if (d->count > 0) {
        const slot *before = at(d, d->count - 1);
        s->step = weft_shot_difference(&before->f, &s->f);
        s->path = before->path + s->step * (s->mixed || before->mixed ? mixed_way : 1);
        if (s->step >= 0.75f)
            s->mismatch = weft_shot_mismatch(&before->f, &s->f, 6, 4);
    }
    d->count++;
    const int64_t from = d->decided;
    WEFT_TRY(decide_cuts(d, false));
    return look_back(d, from, d->decided);
}

weft_status weft_shot_detector_finish(weft_shot_detector *d)
{
    if (d->classic)
        return weft_classic_shots_finish(d->classic, &d->boundary, &d->boundary_count);
    const int64_t from = d->decided;
    WEFT_TRY(decide_cuts(d, true));
    WEFT_TRY(look_back(d, from, d->decided));
    return settle(d, d->count + RING);
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

int64_t weft_shot_detector_frames(const weft_shot_detector *d)
{
    return d->frames;
}

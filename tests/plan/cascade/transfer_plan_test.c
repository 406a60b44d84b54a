/* Simulated transfers of a placed plan: every latent frame is sent once from the device that encodes
 * it to each other device that reads its tokens, counted frame by frame. */
#include "base/rng.h"
#include "plan/cascade/assign_trace.h"
#include "plan/cascade/transfer_plan.h"

#include <criterion/criterion.h>
#include <string.h>

enum { DEVICES = 8, FRAMES = 5, POSITIONS = 6, CLIPS = 3, FRAME_BYTES = 1000, TEXT_BYTES = 77 };

/* `degree` of the devices, in any order. */
static void draw(weft_rng *rng, int64_t degree, int32_t *device)
{
    for (int32_t i = 0; i < DEVICES; i++)
        device[i] = i;
    for (int64_t i = 0; i < degree; i++) {
        const int64_t other = i + (int64_t)weft_rng_below(rng, (uint64_t)(DEVICES - i));
        const int32_t swap = device[i];
        device[i] = device[other];
        device[other] = swap;
    }
}

/* Frame by frame: encoded by an even part of the clips or of a clip's frames, and read on devices that
 * have a token of the frame. */
static void count_frames(const weft_assigned *vae, const weft_assigned *dit,
                         double bytes[DEVICES][DEVICES])
{
    const weft_cascade_row row = {.units = FRAMES, .piece = 1};
    for (int64_t clip = 0; clip < CLIPS; clip++)
        for (int64_t frame = 0; frame < FRAMES; frame++)
            for (int64_t m = 0; m < vae->degree; m++) {
                const weft_cascade_share s = weft_cascade_share_of(&row, CLIPS, vae->degree, m);
                if (clip < s.clips.first || clip >= s.clips.first + s.clips.count ||
                    frame < s.units.first || frame >= s.units.first + s.units.count)
                    continue;
                for (int64_t k = 0; k < dit->degree; k++) {
                    int64_t first, count, own = 0;
                    weft_part(FRAMES * POSITIONS, (int)dit->degree, (int)k, &first, &count);
                    for (int64_t t = first; t < first + count; t++)
                        own += t / POSITIONS == frame;
                    if ((own || (!count && frame == 0)) && vae->device[m] != dit->device[k])
                        bytes[vae->device[m]][dit->device[k]] += FRAME_BYTES;
                }
            }
}

static void compare_sends(const weft_trace *t, double bytes[DEVICES][DEVICES])
{
    for (int64_t i = 0; i < t->step_count; i++) {
        const weft_trace_step *s = &t->step[i];
        const int32_t *pair = t->member + t->group[s->group].first;
        if (s->kind == WEFT_TRACE_SEND)
            bytes[pair[0]][pair[1]] -= s->bytes;
    }
    for (int a = 0; a < DEVICES; a++)
        for (int b = 0; b < DEVICES; b++)
            cr_expect_float_eq(bytes[a][b], 0, 1e-6, "%d to %d: %g bytes too few", a, b,
                               bytes[a][b]);
}

Test(hand_off, frames_go_once_to_devices_whose_tokens_lie_in_them)
{
    weft_rng rng = weft_rng_make(11, WEFT_RNG_PLAN);
    weft_arena *arena = weft_arena_create();
    weft_cluster cluster;
    cr_assert_eq(weft_cluster_load(arena, "h100:1", &cluster), WEFT_OK, "%s", weft_error_message());
    weft_clip_work clip = {.frames = 17,
                           .height = 32,
                           .width = 32,
                           .denoiser = {.layers = 1,
                                        .heads = DEVICES,
                                        .hidden = 8,
                                        .tokens = FRAMES * POSITIONS,
                                        .dtype_bytes = 2},
                           .tiles = 1,
                           .latent_frames = FRAMES,
                           .latent_bytes = FRAMES * FRAME_BYTES,
                           .text_bytes = TEXT_BYTES};
    const weft_model_work model = {
        .name = "m", .layers = 1, .heads = DEVICES, .hidden = 8, .clip = &clip, .clips = 1};
    const weft_cascade_costs costs = {.cluster = &cluster, .model = &model, .text = true};
    weft_plan_bucket bucket = {.batch = CLIPS, .frames = 17, .height = 32, .width = 32};
    const weft_workload samples = {&bucket, 1};
    for (int round = 0; round < 200; round++) {
        int32_t device[3][DEVICES], after[] = {0, 1};
        double bytes[DEVICES][DEVICES] = {{0}};
        weft_assigned item[] = {{"s0.text", device[0], 1, 0, 1, NULL, 0},
                                {"s0.vae", device[1], 0, 0, 1, NULL, 0},
                                {"s0.dit", device[2], 0, 1, 1, after, 2}};
        weft_trace trace;
        for (int i = 0; i < 3; i++) {
            item[i].degree = i ? 1 + (int64_t)weft_rng_below(&rng, DEVICES) : 1;
            draw(&rng, item[i].degree, device[i]);
        }
        count_frames(&item[1], &item[2], bytes);
        for (int64_t k = 0; k < item[2].degree; k++)
            if (device[2][k] != device[0][0])
                bytes[device[0][0]][device[2][k]] += CLIPS * TEXT_BYTES;
        cr_assert_eq(weft_assign_trace(item, 3, DEVICES, &costs, &samples, 1, &trace), WEFT_OK,
                     "%s", weft_error_message());
        compare_sends(&trace, bytes);
        weft_trace_free(&trace);
    }
    weft_arena_free(arena);
}

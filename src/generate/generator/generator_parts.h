/* What a generator is made of, for the files generator*.c alone:
 *
 *     generator_read.c    folder and options -> what is denoised, and how it is checked
 *     generator_graphs.c  -> graphs and programs of text encoders and experts
 *     generator.c         -> memory, weights, levels
 *     generator_walk.c    prompts and noise -> latents -> frames
 *     generator_keep.c    a walk between two steps -> a file, and back */
#ifndef WEFT_GENERATE_GENERATOR_PARTS_H
#define WEFT_GENERATE_GENERATOR_PARTS_H

#include "base/scratch_map.h"
#include "format/tensors.h"
#include "generate/cache.h"
#include "generate/generator.h"
#include "generate/walk_file.h"
#include "generate/windows.h"
#include "prompt/captions.h"

/* A graph as this rank runs it. `graph` is the whole one, `own` the rank's (the same when there is
 * one rank). */
typedef struct weft_generator_part {
    weft_graph *graph, *own;
    weft_program *program;
    weft_tensors *file; /* of weights that are streamed from it; NULL: none are */
    /* whose matrices stay as its files pack them, and where these are; NULL: none do */
    const weft_family *packed;
    const char *folder;
    char prefix[64];
    weft_cache *cache; /* runs in the place of `program`; NULL: none */
} weft_generator_part;

struct weft_generator {
    weft_generator_options options;
    char *folder;
    weft_comm *comm; /* borrowed; NULL: one rank */
    weft_mesh mesh;
    int text_rank;             /* that alone has the text encoders; -1: all do */
    int64_t slices[WEFT_MADE]; /* of the denoiser (pass/pass.h) */
    weft_recipe recipe;        /* how the denoiser is split, and by the same names the encoder */
    /* one denoiser, or an expert of high noise and one of low */
    int experts;
    weft_model denoiser_model[2];
    weft_captions captions;
    weft_spelling spelling;
    char *denoiser_folder[2], *encoder_folder[WEFT_MAX_READERS], *vae_folder;
    weft_grid patch; /* latents to tokens */
    weft_grid grid;  /* pixels to latents */
    weft_scheduler scheduler;
    const weft_guidance *guidance;
    double fps;
    bool published;         /* no weft.json: told what its pipeline tells it */
    weft_given_place place; /* of what is given; its pointers are into this */
    weft_given given;
    weft_likeness likeness;
    weft_windows windows; /* over latent frames */
    int64_t latent[3];    /* frames, height, width */
    int64_t before;       /* of the frames, those that only fill a token, and go at the end */
    int64_t lead;         /* of the others those that are decoded and go then */
    int64_t skipped;      /* steps before the one that a video begins at */
    int64_t longest;      /* options.continues: frames of a window; 0: a video is one */
    int64_t latent_floats, rows; /* rows: of the denoising batch, prompts x halves */
    weft_store *store;
    weft_generator_part encoder[WEFT_MAX_READERS], denoiser[2];
    /* of the steps outside of options.guided: without the second half; no graph: none */
    weft_generator_part alone[2];
    weft_cache_rule cache;
    bool cached;        /* by that rule */
    const float *noise; /* (noises, latents) to begin with, borrowed; NULL: seeds' */
    int64_t noises;
    weft_vae *vae;
    weft_vae *preview; /* of one latent frame, on the rank that shows it; NULL: none */
    float *seen;       /* (batch, frame) of latents that it shows, and room for one */
    weft_leg *leg;     /* [steps] */
    /* x, other (batch,...): what is denoised, and what is said without the prompt; work: the
     * sampler's; all in `walk`. context (rows, told of a prompt) */
    weft_scratch walk;
    float *x, *work, *other, *context;
    const char *const *negatives; /* of each prompt of a run, borrowed; NULL: the options' */
    /* The batch that is denoised: prompts first.. of a run, and where it stands */
    const char *const *prompts;
    const uint64_t *seeds;
    int64_t first, count; /* count: of the run */
    weft_sampler_place place_in_walk;
    bool tile_given;         /* by the options */
    bool goes_on;            /* x and place are those of a kept walk */
    weft_timeline *timeline; /* of the step that is denoised, borrowed; NULL: nobody looks */
    json_t *identity;        /* what numbers depend on; NULL: not asked for yet */
};

/* Of expert i, in graphs, and the folder of the second. */
extern const char *const weft_generator_scopes[2];

/* Reads `p->folder` and settles what p->options left open; nothing is built. */
weft_status weft_generator_read(weft_generator *p);
/* 0 becomes what each rank may take: the ranks of a machine share what it has free; all ranks take
 * the least share of any, and so the same tiles. Collective. `comm` may be NULL. */
weft_status weft_generator_share(weft_comm *comm, int64_t *bytes);
/* Graphs and programs of the text encoders and the experts, and how ranks split them. */
weft_status weft_generator_build(weft_generator *p);
void weft_generator_part_free(weft_generator_part *part);

/* Those with a denoiser, and how many there are. */
enum { WEFT_GENERATOR_DENOISERS = 4 };
int weft_generator_denoisers(const weft_generator *p,
                             const weft_generator_part *list[WEFT_GENERATOR_DENOISERS]);
/* The levels of the walk, once. */
weft_status weft_generator_lay(weft_generator *p);
/* How often each of the denoisers of that list is asked in a walk, in each of its windows: by the
 * sampler itself, with what is seen at none. */
weft_status weft_generator_answers(weft_generator *p, int64_t count[WEFT_GENERATOR_DENOISERS]);
/* The folder for what grows with the length of a video of several windows; NULL: memory. */
const char *weft_generator_away(const weft_generator *p);
/* Nothing that other prompts left is taken again. */
void weft_generator_begin_caches(weft_generator *p);
/* Guidance is given in that step of the walk. */
bool weft_generator_guides(const weft_generator *p, int64_t step);
/* Which of the experts answers at that level. */
int weft_generator_expert(const weft_generator *p, const weft_level *level);

/* This rank has the text encoders. */
bool weft_generator_has_texts(const weft_generator *p);

/* What guidance leads prompt `prompt` of a run away from. */
const char *weft_generator_negative(const weft_generator *p, int64_t prompt);
/* x is this much times the normalised latents. */
double weft_generator_scale(const weft_generator *p);

/* Decoding has run out of memory: whether it may be tried in smaller tiles, and a VAE for those. */
bool weft_generator_may_shrink(const weft_generator *p);
weft_status weft_generator_shrink(weft_generator *p);

/* options.preview: what each step sees is shown behind it. */
weft_status weft_generator_open_preview(weft_generator *p);
int64_t weft_generator_preview_bytes(const weft_generator *p);
weft_status weft_generator_bind_preview(weft_generator *p);
void weft_generator_see(weft_generator *p, int64_t step, const float *x, const weft_level *level,
                        const float *answer);
weft_status weft_generator_show(weft_generator *p, int64_t step, const weft_generator_sink *sink);

/* Inputs that are one number of a video. */
enum { WEFT_GENERATOR_NUMBERS = 4 };
extern const weft_port weft_generator_numbers[WEFT_GENERATOR_NUMBERS];
double weft_generator_number(const weft_generator *p, weft_port port);
/* Timesteps of a sample: one; where some frames are clean one for every token of a window, or
 * (Cosmos 2) for every frame. */
int64_t weft_generator_times(const weft_generator *p);

#endif

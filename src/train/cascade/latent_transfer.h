/* Latent transfer: sends the results of encoders to the ranks of the denoiser (Arachne, IV-D).
 *
 * The sends are those of transfer_plan.h. The program of a rank determines which units the rank
 * reads; units that it does not read are zero. Sends run in the background on the channel
 * WEFT_CHANNEL_HANDOFF. All receives of an iteration are posted at its beginning, into host memory,
 * in the order in which the senders run the producing cascades.
 *
 * Each unit of a message has a header with the sample that it was made from. A sample that cannot
 * be decoded is replaced on the rank that decodes it, so only that rank knows the sample:
 *
 *     | sample (int64) | floats of unit 0 | sample | floats of unit 1 | ... */
#ifndef WEFT_TRAIN_CASCADE_LATENT_TRANSFER_H
#define WEFT_TRAIN_CASCADE_LATENT_TRANSFER_H

#include "train/cascade/cascade_encoders.h"
#include "train/cascade/iteration_layout.h"
#include "train/cascade/kept_rows.h"

/* Rows of one sample and module as they are sent: (clips, units) of a header and floats. */
typedef struct weft_latent_rows {
    unsigned char *data;   /* borrowed; NULL: none */
    int64_t units, floats; /* units of a row; floats of a unit */
} weft_latent_rows;
/* Bytes of a unit in a message, with its header. */
static inline int64_t weft_latent_unit_bytes(const weft_cascade_row *row)
{
    return (int64_t)sizeof(int64_t) + row->floats * (int64_t)sizeof(float);
}
/* The floats of a unit. */
float *weft_latent_rows_unit(const weft_latent_rows *rows, int64_t clip, int64_t unit);
/* The sample that a unit was made from: its index in the data set. */
int64_t weft_latent_rows_sample(const weft_latent_rows *rows, int64_t clip, int64_t unit);
void weft_latent_rows_set_sample(const weft_latent_rows *rows, int64_t clip, int64_t unit,
                                 int64_t sample);

/* Received rows of one sample and module, on a rank that needs some. */
typedef struct weft_received_latents {
    weft_latent_rows rows; /* only this rank's clips are set */
    weft_item_range read;  /* units that are present and that this rank's program reads */
} weft_received_latents;
/* Sets *sample to the sample from which all units of a clip were made that this rank reads.
 * WEFT_E_IO: ranks encoded units of different samples. */
weft_status weft_received_latents_sample(const weft_received_latents *received, int64_t clip,
                                         int64_t *sample);

/* Receives of an iteration, and the received rows. */
typedef struct weft_latent_transfer weft_latent_transfer;
typedef struct weft_latent_transfer_setup {
    weft_comm *comm;
    /* Device whose clock advances with messages; NULL: real time. */
    const weft_device *device;
    weft_device_stream *stream;
    weft_kept_rows *kept; /* rows of the iteration before; NULL: none */
} weft_latent_transfer_setup;
/* Posts the receives of this rank. row[] and read[] are indexed by sample * WEFT_CASCADE_MODULES +
 * module; read[] is as in weft_latent_sends_list. `order` is that of all cascades. All arguments
 * are borrowed until weft_latent_transfer_close.
 *
 * `order` NULL: the ranks of consumers are not decided yet. Nothing is posted, and producers keep
 * their rows until weft_latent_transfer_direct sends them to the ranks of a consumer. */
weft_status weft_latent_transfer_open(const weft_latent_transfer_setup *setup,
                                      const weft_placed_iteration *plan, const int32_t *order,
                                      const weft_cascade_row *row,
                                      const weft_item_range *const *read,
                                      weft_latent_transfer **transfer);
/* Sets *rows to the buffer for the sample's complete rows, in which this rank, a member of
 * cascade `index`, writes its share with the headers. weft_latent_transfer_send releases the
 * buffer unless this rank needs the rows. */
weft_status weft_latent_transfer_buffer(weft_latent_transfer *transfer, int32_t index,
                                        weft_latent_rows *rows);
/* True: the iteration before encoded the rows of kept cascade `index`, so the cascade does not run
 * again. */
bool weft_latent_transfer_is_kept(const weft_latent_transfer *transfer, int32_t index);
/* Moves the rows of samples of the next step to the store of the setup, in place of its entries.
 * Call after all cascades. */
weft_status weft_latent_transfer_keep(weft_latent_transfer *transfer);
/* Sends the rows of cascade `index` to the ranks that need them and keeps the rows that this rank
 * needs. With `order` NULL weft_latent_transfer_direct sends instead. */
weft_status weft_latent_transfer_send(weft_latent_transfer *transfer, int32_t index,
                                      weft_cascade_timing *done);
/* Only with `order` NULL, after the ranks of cascade `index` were decided and stored in the plan.
 * Sends this rank's rows to these ranks, on any thread. `when`: simulated time of the decision,
 * valid beyond the iteration. done[] is the timing array of the iteration. */
weft_status weft_latent_transfer_direct(weft_latent_transfer *transfer, int32_t index, double *when,
                                        weft_cascade_timing *done);
/* Posts the receives of cascade `index` after weft_latent_transfer_direct, on the thread that runs
 * the cascade. */
weft_status weft_latent_transfer_expect(weft_latent_transfer *transfer, int32_t index);
/* Waits for the rows of all predecessors of cascade `index`. received[] is valid until
 * weft_latent_transfer_release. */
weft_status weft_latent_transfer_receive(weft_latent_transfer *transfer, int32_t index,
                                         weft_received_latents received[WEFT_CASCADE_MODULES],
                                         weft_cascade_timing *done);
/* Releases the rows received for cascade `index`. */
void weft_latent_transfer_release(weft_latent_transfer *transfer, int32_t index);
void weft_latent_transfer_close(weft_latent_transfer *transfer); /* accepts NULL */

#endif

/* A clock for tests of deadlines. After stepped_clock_begin, CLOCK_MONOTONIC of this process is
 * simulated: time passes by 50 ms once every thread that drives communication has read the clock
 * several times. A thread that gets no core therefore stops the time of all, and no deadline
 * depends on the load of the machine. */
#ifndef WEFT_TESTS_COMM_STEPPED_CLOCK_H
#define WEFT_TESTS_COMM_STEPPED_CLOCK_H

/* Stops the time until stepped_clock_run or stepped_clock_go. `threads` is the number of threads
 * without stepped_clock_exclude that will read the clock; time also waits for the first read of
 * each. Called by the thread of the test, which is excluded. */
void stepped_clock_begin(int threads);
/* The time does not wait for the calling thread. */
void stepped_clock_exclude(void);
/* Lets `seconds` pass, and stops the time again. */
void stepped_clock_run(double seconds);
/* Lets time pass from now on. */
void stepped_clock_go(void);

#endif

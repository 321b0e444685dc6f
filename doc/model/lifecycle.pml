/* The lifecycle of one server A, as Pinfold does it; B is a rival for the same CPUs.

   Nodes X=0 and Y=1 have one CPU each, and one worker each with three threads (spawner, remover, audit). There are any
   number of conductors: one atomic step is one transaction of the book, and the bell and the sweeper are the same
   step. Then there are an API, an operator, and faults. Every action is one guarded d_step in one loop, so the state
   is just the variables; all faults are bounded, so every run is finite, and "nothing stays undone" is: whatever
   state can do nothing more is clean.

   What must hold
     I1  no CPU is claimed by two                      I2  no CPU is run by two; whatever runs has a claim there
     I3  A runs at most once                           I4  A's disk is on a guest, or in its image
     I5  at the end: no open operation, no leftover, guests just where claims are, no image that nobody needs

   The rules. Each can be switched off, and then there is a story that ends badly (tests/model_check tells all):
     R1  an unwind turns a claim into a leftover; only the word of the node's worker deletes one
     R2  a worker does one thing at a time for a server (spawn, remove, audit)
     R3  once finish was sent, a guest is removed only on the answer "refused"
     R4  an offload whose image is recorded only goes forward
     R5  a release names the claim by its id
     R6  nothing is done while a request of a former incarnation is under way in the hypervisor
     R7  every cast raises the attempt; an answer is repeated to the same node only
     R8  a guest is started by itself only with nothing else claimed, and not on a host that is forced down
     R9  an operation that left a leftover ends: no alternates
     R10 finish is answered from its operation's own row, open or closed
     R11 the image to delete is named by its id
     R12 the book is asked right before the guest of an offload is destroyed
     R13 a lease is renewed by operation, named by the worker that does it
     R14 what is to be done outside the book stands in its outbox, not in the mind of a conductor
     R15 a claim is accepted on the claims as they are when it is written, not when it was planned

   By hand: spin -a lifecycle.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m200000 -w24
   A story: spin -DR3=0 -a lifecycle.pml && gcc -O2 -DSAFETY -DBFS -DCOLLAPSE -o pan pan.c && ./pan -w24
            spin -DR3=0 -t -p -g lifecycle.pml
   With -DASK rules and bounds are read when pan starts, from the environment (OFF=3 START=1 ...), so that one
   compilation does for all.

   Where the product and the model differ: a claim is one CPU, there is one server, and it is not resized; the disk of
   an evacuated server is on storage that its new guest shares; the late second look for an image that a dying worker
   has left half written has no state here.
*/
#ifdef ASK
c_decl {
\#include <stdlib.h>
  static int rules[16], bounds[10];
  static int asked(const char *name, int otherwise)
  {
    const char *value = getenv(name);
    return value ? atoi(value) : otherwise;
  }
  __attribute__((constructor)) static void ask_all(void)
  {
    static const char *names[10] = {"SF", "LIE", "MF", "ML", "MD", "MS", "MO", "T", "START", "STRICT"};
    static const int usual[10] = {1, 0, 1, 1, 1, 1, 2, 4, 0, 1};
    int n;
    for (n = 0; n < 16; n++) rules[n] = asked("OFF", 0) != n;
    for (n = 0; n < 10; n++) bounds[n] = asked(names[n], usual[n]);
  }
}
#define R1 c_expr { rules[1] }
#define R2 c_expr { rules[2] }
#define R3 c_expr { rules[3] }
#define R4 c_expr { rules[4] }
#define R5 c_expr { rules[5] }
#define R6 c_expr { rules[6] }
#define R7 c_expr { rules[7] }
#define R8 c_expr { rules[8] }
#define R9 c_expr { rules[9] }
#define R10 c_expr { rules[10] }
#define R11 c_expr { rules[11] }
#define R12 c_expr { rules[12] }
#define R13 c_expr { rules[13] }
#define R14 c_expr { rules[14] }
#define R15 c_expr { rules[15] }
#define SF c_expr { bounds[0] }
#define LIE c_expr { bounds[1] }
#define MF c_expr { bounds[2] }
#define ML c_expr { bounds[3] }
#define MD c_expr { bounds[4] }
#define MS c_expr { bounds[5] }
#define MO c_expr { bounds[6] }
#define T c_expr { bounds[7] }
#define START c_expr { bounds[8] }
#define STRICT c_expr { bounds[9] }
#else
#ifndef R1
#define R1 1
#endif
#ifndef R2
#define R2 1
#endif
#ifndef R3
#define R3 1
#endif
#ifndef R4
#define R4 1
#endif
#ifndef R5
#define R5 1
#endif
#ifndef R6
#define R6 1
#endif
#ifndef R7
#define R7 1
#endif
#ifndef R8
#define R8 1
#endif
#ifndef R9
#define R9 1
#endif
#ifndef R10
#define R10 1
#endif
#ifndef R11
#define R11 1
#endif
#ifndef R12
#define R12 1
#endif
#ifndef R13
#define R13 1
#endif
#ifndef R14
#define R14 1
#endif
#ifndef R15
#define R15 1
#endif
#ifndef SF
#define SF 1 /* workers fence themselves (no safety rests on it) */
#endif
#ifndef LIE
#define LIE 0 /* the operator may be wrong (I3 then not asserted) */
#endif
#ifndef MF
#define MF 1 /* crashes, power cuts, hosts cut off */
#endif
#ifndef ML
#define ML 1 /* lost casts and replies */
#endif
#ifndef MD
#define MD 1 /* doubled casts and requests */
#endif
#ifndef MS
#define MS 1 /* a lease lapses, or a service looks down, though the worker is alive */
#endif
#ifndef MO
#define MO 2 /* requests to the API */
#endif
#ifndef T
#define T 4 /* the last attempt, where an operation is at its deadline */
#endif
#ifndef START
#define START 0 /* 0: SHELVED_OFFLOADED; 1: ACTIVE on X */
#endif
#ifndef STRICT
#define STRICT 1 /* a guest without a claim is an error (I2) */
#endif
#endif
#define OFFLOADED 0
#define ACT 1
#define DEL 2
#define UNSH 1
#define EVAC 2
#define OFFL 3
#define DELT 4
#define CUR 1
#define LEFT 2
#define INC 3
#define CLAIM 1
#define FINISH 2
#define ABORT 3
#define UNCLEAN 4 /* an abort: the guest could not be removed */
#define OK 1
#define REF 2
#define NOFIT 3
byte vm, img, imgdel;
byte cl[2], cid[2];         /* A's claim per node: role, id */
bool bc[2], bg[2], bused;   /* B's claim, B's guest */
byte g[2];                  /* A's guest: 0 none, 1 runs, 2 defined but off (power cut) */
bool hv[2];                 /* hypervisor has a create under way */
bool open, lease; byte kind, step, tok, owner, fin, clm, tried;  /* the operation; clm: attempt whose claim step is done */
bool up[2], cut[2], host[2], fd[2];
byte mU[2], mO[2], mD[2];   /* casts in flight: bit per attempt */
byte s[2], st[2], rq[2], rqt[2], rp[2];       /* spawner thread, its request and reply */
byte r[2], rt[2], rk[2], q2[2], q2t[2], q2k[2], p2[2]; /* remover thread */
byte a[2], av[2], ai[2]; bool rel[2]; byte reli[2];    /* audit thread, release request */
bool room[2];               /* with R15 off: what the worker has planned its claim on */
byte nf, nl, nd, ns, nops, nfail;
byte x;

#define B(t) (1<<(t))
#define live(w) (up[w] && host[w])
#define reach(w) (up[w] && host[w] && !cut[w])
#define looksdown(w) (!reach(w))
#define busy(w) (s[w] || r[w] || a[w])
#define FREE(w) (!R2 || !busy(w))
#define DOING(w) ((s[w]&&st[w]==tok) || (r[w]&&rt[w]==tok) || ((mU[w]|mO[w]|mD[w]) & B(tok)))
#define HVOK(w) (!R6 || !hv[w])
#define plan(w) room[w] = !R15 && !bc[w]

inline inv() {
  x = 0;
  assert(!(cl[0] && bc[0]) && !(cl[1] && bc[1]));                               /* I1 */
  assert(!(g[0]==1 && bg[0]) && !(g[1]==1 && bg[1]));                           /* I2: CPU never run by two */
  assert(!STRICT || ((g[0]!=1 || cl[0]) && (g[1]!=1 || cl[1])));                 /* I2: what runs has a claim */
  assert(LIE || !(g[0]==1 && g[1]==1));                                               /* I3 (operator is truthful) */
  assert(vm==DEL || (open && kind==DELT) || img || g[0] || g[1]);                                       /* I4 */
}
#define NEWOP(k) open=1; kind=k; step=0; tok++; lease=0; owner=2; nops++; clm=0; tried=0

#define TAKE_U(w,t) \
 :: d_step { reach(w) && (mU[w] & B(t)) && !s[w] && FREE(w) && HVOK(w) -> mU[w]=mU[w]&~B(t); s[w]=1; st[w]=t } \
 :: d_step { nd<MD && reach(w) && (mU[w] & B(t)) && !s[w] && FREE(w) && HVOK(w) -> nd++; s[w]=1; st[w]=t } \
 :: d_step { nl<ML && (mU[w] & B(t)) -> nl++; mU[w]=mU[w]&~B(t); if :: open&&tok==t -> lease=0 :: else fi }
#define TAKE_R(w,t,m,k) \
 :: d_step { reach(w) && (m[w] & B(t)) && !r[w] && FREE(w) && HVOK(w) -> m[w]=m[w]&~B(t); r[w]=1; rt[w]=t; rk[w]=k } \
 :: d_step { nd<MD && reach(w) && (m[w] & B(t)) && !r[w] && FREE(w) && HVOK(w) -> nd++; r[w]=1; rt[w]=t; rk[w]=k } \
 :: d_step { nl<ML && (m[w] & B(t)) -> nl++; m[w]=m[w]&~B(t); if :: open&&tok==t -> lease=0 :: else fi }
#define TAKE(w,t) TAKE_U(w,t) TAKE_R(w,t,mO,OFFL) TAKE_R(w,t,mD,DELT)

/* the conductor's answer to the spawner's request; x = answer */
inline serve1(w) {
  x = REF;
  if
  :: rq[w]==CLAIM ->
     if
     :: open && tok==rqt[w] && (kind==UNSH||kind==EVAC) ->
        if
        :: cl[w]==INC -> x=OK; clm=tok; step=2; owner=w; lease=1
        :: !R7 && clm==tok -> x=OK                       /* answer replayed by (op, attempt, step) alone */
        :: else ->
           if
           :: clm==tok || cl[1-w]==INC -> x=REF
           :: else ->
              if :: cl[w]==0 && (!bc[w] || room[w]) -> cl[w]=INC; cid[w]=tok; clm=tok; step=2; owner=w; lease=1; x=OK
                 :: else -> x=NOFIT fi
           fi
        fi
     :: else fi
  :: rq[w]==FINISH ->
     if
     :: open && tok==rqt[w] && cl[w]==INC ->
        if :: kind==EVAC -> if :: cl[1-w]==CUR -> cl[1-w]=LEFT :: else fi :: else imgdel=img fi;
        cl[w]=CUR; vm=ACT; open=0; lease=0; fin=tok; x=OK
     :: fin==rqt[w] && (R10 || !open) -> x=OK
     :: else fi
  :: rq[w]==ABORT ->
     if
     :: open && tok==rqt[w] ->
        if :: cl[w]==INC -> cl[w]=0; cid[w]=0 :: else fi;
        lease=0; x=OK; tried=tried|B(w);
        /* clean, so another host is tried */
        if :: kind==UNSH && !(tried & B(1-w)) && tok<T -> tok++; step=0 :: else -> open=0; tried=0 fi
     :: else fi
  :: rq[w]==UNCLEAN ->
     if
     :: open && tok==rqt[w] ->
        if :: cl[w]==INC -> cl[w]=LEFT :: else fi;
        lease=0; x=OK; tried=tried|B(w);
        if :: !R9 && kind==UNSH && !(tried & B(1-w)) && tok<T -> tok++; step=0 :: else -> open=0; tried=0 fi
     :: else fi
  fi
}
inline serve2(w) {
  x = REF;
  if
  :: q2[w]==1 ->                                                  /* image recorded (snapshot done) */
     if :: open && tok==q2t[w] && kind==OFFL && (step>=3 || g[w]) ->
           if :: step<3 -> img=tok; step=3 :: else fi; owner=w; lease=1; x=OK
        :: else fi
  :: q2[w]==2 ->                                                  /* removed */
     if :: open && tok==q2t[w] && kind==OFFL -> cl[w]=0; cid[w]=0; vm=OFFLOADED; open=0; lease=0; x=OK
        :: open && tok==q2t[w] && kind==DELT ->
           if :: cl[w]!=LEFT -> cl[w]=0; cid[w]=0 :: else fi;
           x=OK;
           if :: cl[1-w]==0 || cl[1-w]==LEFT -> vm=DEL; open=0; lease=0; imgdel=img :: else fi
        :: else fi
  fi
}
#define SPAWN(w) \
 :: d_step { reach(w) && s[w]==1 && !rq[w] -> rq[w]=CLAIM; plan(w); rqt[w]=st[w]; rp[w]=0; s[w]=2 } \
 :: d_step { reach(w) && s[w]==2 && rp[w]==OK && HVOK(w) -> rp[w]=0; s[w]=3 } \
 :: d_step { reach(w) && s[w]==2 && rp[w]==REF -> rp[w]=0; s[w]=0; st[w]=0 } \
 :: d_step { reach(w) && s[w]==2 && rp[w]==NOFIT && !rq[w] -> rp[w]=0; s[w]=6; rq[w]=ABORT; rqt[w]=st[w] } \
 :: d_step { live(w) && s[w]==3 && g[w]==0 -> s[w]=4; hv[w]=1 } \
 :: d_step { live(w) && s[w]==3 && g[w] -> s[w]=4; g[w]=1; inv() } \
 :: d_step { nfail<1 && live(w) && s[w]==4 && hv[w] -> nfail++; hv[w]=0; s[w]=7 } \
 :: d_step { reach(w) && s[w]==7 && !rq[w] -> g[w]=0; inv(); s[w]=6; rq[w]=ABORT; rqt[w]=st[w]; rp[w]=0 } \
 :: d_step { nfail<2 && reach(w) && s[w]==7 && !rq[w] -> nfail++; s[w]=8; rq[w]=UNCLEAN; rqt[w]=st[w]; rp[w]=0 } \
 :: d_step { reach(w) && s[w]==4 && !hv[w] && !rq[w] -> s[w]=5; rq[w]=FINISH; rqt[w]=st[w]; rp[w]=0 } \
 :: d_step { reach(w) && s[w]==5 && rp[w]==OK -> rp[w]=0; s[w]=0; st[w]=0 } \
 :: d_step { reach(w) && s[w]==5 && rp[w]==REF -> rp[w]=0; s[w]=0; st[w]=0; g[w]=0; inv() } \
 :: d_step { reach(w) && (s[w]==6||s[w]==8) && rp[w] -> rp[w]=0; s[w]=0; st[w]=0 } \
 :: d_step { hv[w] && host[w] -> hv[w]=0; g[w]=1; inv() } \
 /* reply was lost: call again */ \
 :: d_step { reach(w) && !rq[w] && !rp[w] && (s[w]==2||s[w]==5||s[w]==6||s[w]==8) -> rqt[w]=st[w]; \
     if :: s[w]==2 -> rq[w]=CLAIM; plan(w) :: s[w]==5 -> rq[w]=FINISH :: s[w]==6 -> rq[w]=ABORT \
        :: s[w]==8 -> rq[w]=UNCLEAN fi } \
 /* self-fence of a worker that cannot renew */ \
 :: d_step { SF && cut[w] && live(w) && s[w] && !hv[w] && !(R3 && s[w]==5) && s[w]!=8 -> if :: s[w]>=4 -> g[w]=0 :: else fi; s[w]=0; st[w]=0; rp[w]=0; inv() }
#define SERVE(w) \
 :: d_step { rq[w] && !cut[w] -> serve1(w); if :: s[w] && st[w]==rqt[w] && live(w) && ((rq[w]==CLAIM&&s[w]==2)||(rq[w]==FINISH&&s[w]==5)||(rq[w]==ABORT&&s[w]==6) || (rq[w]==UNCLEAN&&s[w]==8)) -> rp[w]=x :: else fi; rq[w]=0; rqt[w]=0; inv() } \
 /* request got through before the cut / its reply is lost */ \
 :: d_step { rq[w] && (cut[w] || nl<ML) -> serve1(w); if :: !cut[w] -> nl++ :: else fi; rq[w]=0; rqt[w]=0; inv() } \
 :: d_step { rq[w] && nd<MD -> nd++; serve1(w); inv() } \
 :: d_step { q2[w] && !cut[w] -> serve2(w); if :: r[w] && rt[w]==q2t[w] && live(w) && r[w]==1+q2[w] -> p2[w]=x :: else fi; q2[w]=0; q2t[w]=0; inv() } \
 :: d_step { q2[w] && (cut[w] || nl<ML) -> serve2(w); if :: !cut[w] -> nl++ :: else fi; q2[w]=0; q2t[w]=0; inv() } \
 :: d_step { q2[w] && nd<MD -> nd++; serve2(w); inv() } \
 :: d_step { rel[w] -> if :: cl[w]==LEFT && (!R5 || cid[w]==reli[w]) -> cl[w]=0; cid[w]=0 :: else fi; rel[w]=0; reli[w]=0; inv() } \
 :: d_step { rel[w] && nd<MD -> nd++; if :: cl[w]==LEFT && (!R5 || cid[w]==reli[w]) -> cl[w]=0; cid[w]=0 :: else fi; inv() }
#define REMOVE(w) \
 :: d_step { !R12 && reach(w) && r[w]==1 && rk[w]==OFFL -> if :: g[w] -> img=rt[w] :: else fi; r[w]=4 } \
 :: d_step { R12 && reach(w) && r[w]==1 && rk[w]==OFFL && !q2[w] -> q2[w]=1; q2t[w]=rt[w]; p2[w]=0; r[w]=2 } \
 :: d_step { reach(w) && r[w]==2 && p2[w]==REF -> p2[w]=0; r[w]=0; rt[w]=0; rk[w]=0 } \
 :: d_step { reach(w) && r[w]==2 && p2[w]==OK -> p2[w]=0; r[w]=4 } \
 :: d_step { reach(w) && r[w]==1 && rk[w]==DELT -> r[w]=4 } \
 :: d_step { live(w) && r[w]==4 -> g[w]=0; r[w]=5; inv() } \
 :: d_step { reach(w) && r[w]==5 && !q2[w] -> q2[w]=2; q2t[w]=rt[w]; p2[w]=0; r[w]=3 } \
 :: d_step { reach(w) && r[w]==3 && p2[w] -> p2[w]=0; r[w]=0; rt[w]=0; rk[w]=0 } \
 :: d_step { reach(w) && !q2[w] && !p2[w] && (r[w]==2||r[w]==3) -> q2t[w]=rt[w]; q2[w]=r[w]-1 }
/* audit: read the book, later act on it, then release */
#define AUDIT(w) \
 :: d_step { reach(w) && !a[w] && FREE(w) && HVOK(w) && ((g[w] && (cl[w]==0||cl[w]==LEFT)) || cl[w]==LEFT || (cl[w]==CUR && g[w]==2 && !(R8 && (fd[w] || open || cl[1-w]))) || (!R3 && cl[w]==INC && g[w] && !s[w])) \
     -> a[w]=1; av[w]=cl[w]; ai[w]=cid[w] } \
 :: d_step { live(w) && a[w]==1 && av[w]==CUR -> if :: g[w]==2 -> g[w]=1 :: else fi; a[w]=0; av[w]=0; ai[w]=0; inv() } \
 :: d_step { live(w) && a[w]==1 && (av[w]==0 || av[w]==INC) -> g[w]=0; a[w]=0; av[w]=0; ai[w]=0; inv() } \
 :: d_step { live(w) && a[w]==1 && av[w]==LEFT -> g[w]=0; a[w]=2; inv() } \
 :: d_step { reach(w) && a[w]==2 && !rel[w] -> rel[w]=1; reli[w]=ai[w]; a[w]=0; av[w]=0; ai[w]=0 }
#define CLRW(w) up[w]=0; s[w]=0; st[w]=0; rp[w]=0; r[w]=0; rt[w]=0; rk[w]=0; p2[w]=0; a[w]=0; av[w]=0; ai[w]=0
#define FAULT(w) \
 :: d_step { nf<MF && live(w) -> nf++; CLRW(w) } \
 :: d_step { nf<MF && host[w] -> nf++; CLRW(w); host[w]=0; hv[w]=0; cut[w]=0; if :: g[w]==1 -> g[w]=2 :: else fi; bg[w]=0 } \
 :: d_step { nf<MF && reach(w) -> nf++; cut[w]=1 } \
 :: d_step { !host[w] -> host[w]=1 } \
 :: d_step { host[w] && !up[w] -> up[w]=1; if :: owner==w -> lease=0 :: else fi } \
 :: d_step { cut[w] -> cut[w]=0 } \
 :: d_step { open && lease && owner==w && (looksdown(w) || (R13 && !DOING(w))) -> lease=0 } \
 :: d_step { open && lease && owner==w && ns<MS -> ns++; lease=0 }
#define BEE(w) \
 :: d_step { !bused && cl[w]==0 && !bc[w] -> bused=1; bc[w]=1 } \
 :: d_step { bc[w] && !bg[w] && reach(w) -> bg[w]=1; inv() }
/* conductor: choose a node and cast (bell, or the sweeper that found the row: the same step) */
#define CAST_U(w) \
 :: d_step { open && step==0 && (kind==UNSH||(kind==EVAC&&w==1)) && cl[1-w]!=INC && (cl[w]==INC || (!looksdown(w) && !(tried & B(w)))) -> step=1; owner=w; lease=1; mU[w]=mU[w]|B(tok) }
#define CAST_R(w) \
 :: d_step { open && step==0 && kind==OFFL && cl[w]==CUR -> step=1; owner=w; lease=1; mO[w]=mO[w]|B(tok) } \
 :: d_step { open && step==0 && kind==DELT && cl[w] && cl[w]!=LEFT && !looksdown(w) -> assert(cl[w]); step=1; owner=w; lease=1; mD[w]=mD[w]|B(tok) } \
 :: d_step { open && kind==DELT && cl[w] && cl[w]!=LEFT && (looksdown(w) || ns<MS) -> if :: !looksdown(w) -> ns++ :: else fi; \
      cl[w]=LEFT; if :: cl[1-w]==0||cl[1-w]==LEFT -> vm=DEL; open=0; lease=0; imgdel=img :: else step=0 fi; inv() }
#define SWEEP(w) \
 /* claim exists: unwind */ \
 :: d_step { open && (kind==UNSH||kind==EVAC) && step>=1 && !lease && cl[w]==INC -> if :: R1 -> cl[w]=LEFT :: else cl[w]=0; cid[w]=0 fi; open=0; inv() } \
 :: d_step { !R9 && tok<T && open && (kind==UNSH||kind==EVAC) && step>=1 && !lease && cl[w]==INC -> if :: R1 -> cl[w]=LEFT :: else cl[w]=0; cid[w]=0 fi; tok++; step=0; inv() } \
 /* offload whose host does not come back: forward, with a leftover */ \
 :: d_step { open && kind==OFFL && step>=3 && !lease && R4 && cl[w]==CUR && (looksdown(w) || tok==T) -> cl[w]=LEFT; vm=OFFLOADED; open=0; inv() } \
 :: d_step { open && kind==DELT && step>=1 && !lease && tok==T && cl[w] && cl[w]!=LEFT -> cl[w]=LEFT; \
      if :: cl[1-w]==0||cl[1-w]==LEFT -> vm=DEL; open=0; imgdel=img :: else fi; inv() }
#define HOST(w) TAKE(w,1) TAKE(w,2) TAKE(w,3) TAKE(w,4) TAKE(w,5) SPAWN(w) SERVE(w) REMOVE(w) AUDIT(w) FAULT(w) BEE(w) CAST_U(w) CAST_R(w) SWEEP(w)

init {
  d_step {
    up[0]=1; up[1]=1; host[0]=1; host[1]=1; owner=2;
    if :: START==0 -> vm=OFFLOADED; img=7 :: else vm=ACT; cl[0]=CUR; cid[0]=7; g[0]=1 fi
  }
  do
  HOST(0)
  HOST(1)
  /* API */
  :: d_step { nops<MO && !open && vm==OFFLOADED && tok<T && (cl[0]!=LEFT || fd[0]) && cl[1]!=LEFT -> NEWOP(UNSH) }
  :: d_step { nops<MO && !open && vm==ACT && tok<T && (cl[0]==CUR||cl[1]==CUR) -> NEWOP(OFFL) }
  :: d_step { nops<MO && !open && vm==ACT && tok<T && fd[0] && cl[0]==CUR -> NEWOP(EVAC) }
  :: d_step { nops<MO && vm!=DEL && !(open && kind==DELT) && (cl[0]==0||cl[0]==LEFT) && (cl[1]==0||cl[1]==LEFT)
              -> vm=DEL; open=0; lease=0; imgdel=img; nops++; inv() }                                   /* local: no message */
  :: d_step { nops<MO && vm!=DEL && !(open && kind==DELT) && tok<T && !((cl[0]==0||cl[0]==LEFT) && (cl[1]==0||cl[1]==LEFT)) -> NEWOP(DELT) }
  /* operator (truthful: says "fenced" only when the host is off) */
  :: d_step { !fd[0] && (!host[0] || (LIE && cut[0])) && START==1 -> fd[0]=1 }
  :: d_step { fd[0] && host[0] && up[0] && !(R8 && open && kind==EVAC) -> fd[0]=0 }
  /* sweeper: no claim yet, or run on from the recorded step */
  :: d_step { open && step>=1 && !lease && tok<T && !(kind==OFFL && step>=3) -> tok++; step=0 }
  :: d_step { !R7 && open && kind==UNSH && step==1 && !lease && tok<T && ns<MS -> ns++; step=0 }
  :: d_step { open && step>=3 && kind==OFFL && !lease && tok<T && cl[0]==CUR && reach(0) -> tok++; lease=1; owner=0; mO[0]=mO[0]|B(tok) }
  :: d_step { open && step>=3 && kind==OFFL && !lease && tok<T && cl[1]==CUR && reach(1) -> tok++; lease=1; owner=1; mO[1]=mO[1]|B(tok) }
  :: d_step { open && !lease && (kind==UNSH||kind==EVAC) && cl[0]!=INC && cl[1]!=INC -> open=0 }
  :: d_step { open && !lease && kind==OFFL && step<3 -> open=0 }
  :: d_step { !R4 && open && !lease && kind==OFFL && step>=3 -> img=0; open=0; inv() }
  :: d_step { !R14 && nf<MF && imgdel -> nf++; imgdel=0 }            /* what a conductor had in mind dies with it */
  :: d_step { imgdel -> if :: imgdel==img || !R11 -> img=0 :: else fi; imgdel=0; inv() }
  :: else -> break
  od;
  /* I5: nothing more can happen, all hosts are up */
  assert(!open);
  assert(cl[0]!=LEFT && cl[1]!=LEFT && cl[0]!=INC && cl[1]!=INC);
  assert((cl[0]==CUR)==(g[0]==1) && (cl[1]==CUR)==(g[1]==1) && g[0]!=2 && g[1]!=2);
  assert(vm!=ACT || (cl[0]==CUR)+(cl[1]==CUR)==1);
  assert(vm==ACT || (cl[0]!=CUR && cl[1]!=CUR));
  assert((vm==OFFLOADED) == (img!=0))
}

package consumer

// mostOfChain bounds the orders of one chain that are admitted and not settled: enough that the next is there when one
// ends, few enough that a hot key has no share to speak of in what is admitted.
const mostOfChain = 8

// lots is where records wait that were fetched and may not be admitted yet, because enough of their chain are. Other
// records of their partition pass them by. It is pure and not safe for concurrent use; the lane bounds it by leaving out
// a partition with too much in it.
type lots struct {
	ordering Ordering
	chains   map[chainID]*lot
	parked   int
}

// lot is one chain's.
type lot struct {
	admitted int // or being admitted, and not over
	parked   fifo[record]
}

func newLots(o Ordering) *lots { return &lots{ordering: o, chains: map[chainID]*lot{}} }

// enter says whether a record may be admitted now; if not it is parked.
func (s *lots) enter(r *record) bool {
	id, ok := s.ordering.chainOf(r.message.Partition, r.message.Key)
	if !ok {
		return true
	}
	c := s.chains[id]
	if c == nil {
		c = &lot{}
		s.chains[id] = c
	}
	if c.admitted >= mostOfChain || c.parked.len() > 0 {
		c.parked.push(*r)
		s.parked++
		return false
	}
	c.admitted++
	return true
}

// leave says that a record that had entered is over. It returns one that was parked behind it and has entered in its
// place, if there is one.
func (s *lots) leave(partition int32, key []byte) (next record, ok bool) {
	id, chained := s.ordering.chainOf(partition, key)
	c := s.chains[id]
	if !chained || c == nil {
		return record{}, false
	}
	if c.parked.len() > 0 {
		s.parked--
		return c.parked.pop(), true
	}
	c.admitted--
	if c.admitted == 0 {
		delete(s.chains, id)
	}
	return record{}, false
}

// clear empties the lots and returns what was parked.
func (s *lots) clear() []record {
	all := make([]record, 0, s.parked)
	for _, c := range s.chains {
		for c.parked.len() > 0 {
			all = append(all, c.parked.pop())
		}
	}
	*s = *newLots(s.ordering)
	return all
}
